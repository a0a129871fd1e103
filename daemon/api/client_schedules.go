package api

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/exocomp/exocomp/daemon"
)

func schedulePath(name string) string { return "/schedules/" + url.PathEscape(name) }

// Schedules implements daemon.Client.
func (c *Client) Schedules(ctx context.Context) (list daemon.ScheduleList, err error) {
	err = c.call(ctx, http.MethodGet, "/schedules", nil, nil, nil, &list)
	return list, err
}

// Schedule implements daemon.Client.
func (c *Client) Schedule(ctx context.Context, name string) (v daemon.ScheduleView, err error) {
	err = c.call(ctx, http.MethodGet, schedulePath(name), nil, nil, nil, &v)
	return v, err
}

// AddSchedule implements daemon.Client.
func (c *Client) AddSchedule(ctx context.Context, r daemon.ScheduleRequest) (a daemon.ScheduleAnswer, err error) {
	err = c.call(ctx, http.MethodPost, "/schedules", nil, nil, r, &a)
	return a, err
}

// EditSchedule implements daemon.Client.
func (c *Client) EditSchedule(ctx context.Context, r daemon.ScheduleRequest) (a daemon.ScheduleAnswer, err error) {
	err = c.call(ctx, http.MethodPut, schedulePath(r.Name), nil, nil, r, &a)
	return a, err
}

// RemoveSchedule implements daemon.Client.
func (c *Client) RemoveSchedule(ctx context.Context, name string) (a daemon.ScheduleAnswer, err error) {
	err = c.call(ctx, http.MethodDelete, schedulePath(name), nil, nil, nil, &a)
	return a, err
}

// EnableSchedule implements daemon.Client.
func (c *Client) EnableSchedule(ctx context.Context, name string, on bool) (a daemon.ScheduleAnswer, err error) {
	verb := "/disable"
	if on {
		verb = "/enable"
	}
	err = c.call(ctx, http.MethodPost, schedulePath(name)+verb, nil, nil, nil, &a)
	return a, err
}

// values collects what is not empty.
type values url.Values

func (v values) set(name, value string) {
	if value != "" {
		url.Values(v).Set(name, value)
	}
}

func (v values) time(name string, m daemon.Millis) {
	text, _ := m.MarshalText() // never fails
	v.set(name, string(text))
}

func (v values) count(name string, n int) {
	if n != 0 {
		v.set(name, strconv.Itoa(n))
	}
}

// Upcoming implements daemon.Client.
func (c *Client) Upcoming(ctx context.Context, q daemon.UpcomingQuery) (list daemon.UpcomingList, err error) {
	v := values{}
	v.set("schedule", q.Name)
	v.time("from", q.From)
	v.count("n", q.N)
	err = c.call(ctx, http.MethodGet, "/upcoming", url.Values(v), nil, nil, &list)
	return list, err
}

// Fires implements daemon.Client.
func (c *Client) Fires(ctx context.Context, q daemon.FireQuery) (page daemon.FirePage, err error) {
	v := values{}
	v.set("schedule", q.Schedule)
	names := make([]string, len(q.Outcomes))
	for i, o := range q.Outcomes {
		names[i] = string(o)
	}
	v.set("outcome", strings.Join(names, ","))
	v.time("since", q.Since)
	v.set("cursor", q.Cursor)
	v.count("limit", q.Limit)
	err = c.call(ctx, http.MethodGet, "/fires", url.Values(v), nil, nil, &page)
	return page, err
}
