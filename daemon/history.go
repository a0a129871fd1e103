package daemon

import "context"

// maxHistory bounds one answer of History.
const maxHistory = 1000

// HistoryPage is the store's own history, the newest first.
type HistoryPage struct {
	Events []Happening `json:"events"`
}

// History implements Client.
func (s reads) History(ctx context.Context, limit int) (page HistoryPage, err error) {
	if limit < 1 || limit > maxHistory {
		return page, Errorf(Invalid, "limit %d: it must be between 1 and %d", limit, maxHistory).Hint("leave it out for 50")
	}
	err = s.store.View(ctx, func(r Reader) error {
		page.Events, err = Happenings.Scan(ctx, r, Query{Desc: true, Limit: limit})
		return err
	})
	if page.Events == nil {
		page.Events = []Happening{}
	}
	return page, err
}
