package daemon

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// ParseSpan reads a duration as people write it: as Go does, with days before
// the rest, such as 90d, 1d12h or 1h30m. A plain 0 is none.
func ParseSpan(text string) (time.Duration, error) {
	days, rest, found := strings.Cut(text, "d")
	if !found {
		return time.ParseDuration(text)
	}
	n, err := strconv.ParseUint(days, 10, 16)
	if err != nil {
		return 0, errors.New("the number before d is no whole number of days")
	}
	d := time.Duration(n) * 24 * time.Hour
	if rest == "" {
		return d, nil
	}
	more, err := time.ParseDuration(rest)
	if err != nil || more < 0 || more >= 24*time.Hour {
		return 0, errors.New("what follows the days is no duration below 24h")
	}
	return d + more, nil
}

// SpanText writes d so that ParseSpan reads it back, without empty units.
func SpanText(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
