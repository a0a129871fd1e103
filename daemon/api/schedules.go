package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/exocomp/exocomp/daemon"
)

// scheduleRoutes registers the operations on schedules and their ledger.
func (s *Server) scheduleRoutes(api huma.API) {
	one := "/schedules/{schedule}"
	register(api, op("list-schedules", http.MethodGet, "/schedules", "List schedules, by name"), s.listSchedules)
	register(api, op("add-schedule", http.MethodPost, "/schedules", "Add a schedule"), s.addSchedule)
	register(api, op("get-schedule", http.MethodGet, one, "Show one schedule"), s.getSchedule)
	register(api, op("edit-schedule", http.MethodPut, one, "Replace a schedule"), s.editSchedule)
	register(api, op("remove-schedule", http.MethodDelete, one, "Remove a schedule; its ledger stays"), s.removeSchedule)
	register(api, op("enable-schedule", http.MethodPost, one+"/enable", "Let a schedule fire, from the next reload on"), s.enableSchedule)
	register(api, op("disable-schedule", http.MethodPost, one+"/disable", "Let a schedule not fire, at once"), s.disableSchedule)
	register(api, op("list-upcoming", http.MethodGet, "/upcoming", "Say when schedules will be due"), s.listUpcoming)
	register(api, op("list-fires", http.MethodGet, "/fires", "Say what became of due instants, the newest first"), s.listFires)
}

func (s *Server) listSchedules(ctx context.Context, _ *struct{}) (*body[daemon.ScheduleList], error) {
	list, err := s.client(ctx).Schedules(ctx)
	return &body[daemon.ScheduleList]{list}, err
}

func (s *Server) addSchedule(ctx context.Context, in *struct{ Body daemon.ScheduleRequest }) (*body[daemon.ScheduleAnswer], error) {
	a, err := s.client(ctx).AddSchedule(ctx, in.Body)
	return &body[daemon.ScheduleAnswer]{a}, err
}

type scheduleInput struct {
	Schedule string `path:"schedule" maxLength:"60" doc:"its name"`
}

func (s *Server) getSchedule(ctx context.Context, in *scheduleInput) (*body[daemon.ScheduleView], error) {
	v, err := s.client(ctx).Schedule(ctx, in.Schedule)
	return &body[daemon.ScheduleView]{v}, err
}

type editInput struct {
	Schedule string `path:"schedule" maxLength:"60" doc:"its name"`
	Body     daemon.ScheduleRequest
}

func (s *Server) editSchedule(ctx context.Context, in *editInput) (*body[daemon.ScheduleAnswer], error) {
	if in.Body.Name == "" {
		in.Body.Name = in.Schedule
	}
	if in.Body.Name != in.Schedule {
		return nil, daemon.Errorf(daemon.Invalid, "the name in the body is not the one in the path: a schedule cannot be renamed").
			Hint("add one with the new name and remove the old one")
	}
	a, err := s.client(ctx).EditSchedule(ctx, in.Body)
	return &body[daemon.ScheduleAnswer]{a}, err
}

func (s *Server) removeSchedule(ctx context.Context, in *scheduleInput) (*body[daemon.ScheduleAnswer], error) {
	a, err := s.client(ctx).RemoveSchedule(ctx, in.Schedule)
	return &body[daemon.ScheduleAnswer]{a}, err
}

func (s *Server) enableSchedule(ctx context.Context, in *scheduleInput) (*body[daemon.ScheduleAnswer], error) {
	a, err := s.client(ctx).EnableSchedule(ctx, in.Schedule, true)
	return &body[daemon.ScheduleAnswer]{a}, err
}

func (s *Server) disableSchedule(ctx context.Context, in *scheduleInput) (*body[daemon.ScheduleAnswer], error) {
	a, err := s.client(ctx).EnableSchedule(ctx, in.Schedule, false)
	return &body[daemon.ScheduleAnswer]{a}, err
}

type upcomingInput struct {
	Schedule string `query:"schedule" maxLength:"60" doc:"a name; all that are enabled, if left out"`
	From     string `query:"from" doc:"RFC 3339; now, if left out"`
	N        int    `query:"n" minimum:"1" maximum:"1000" default:"10"`
}

func (s *Server) listUpcoming(ctx context.Context, in *upcomingInput) (*body[daemon.UpcomingList], error) {
	q := daemon.UpcomingQuery{Name: in.Schedule, N: in.N}
	if err := q.From.UnmarshalText([]byte(in.From)); err != nil {
		return nil, notATime("from")
	}
	list, err := s.client(ctx).Upcoming(ctx, q)
	return &body[daemon.UpcomingList]{list}, err
}

func notATime(name string) error {
	return daemon.Errorf(daemon.Invalid, "%s is no RFC 3339 time", name).Hint("write 2030-01-31T03:00:00Z")
}

type firesInput struct {
	Schedule string   `query:"schedule" maxLength:"60" doc:"a name; all, if left out"`
	Outcome  []string `query:"outcome,explode" doc:"an outcome, or some with commas between; any of them matches"`
	Since    string   `query:"since" doc:"RFC 3339: due then or later"`
	Cursor   string   `query:"cursor" doc:"next of the page before"`
	Limit    int      `query:"limit" minimum:"1" maximum:"1000" default:"50"`
}

func (s *Server) listFires(ctx context.Context, in *firesInput) (*body[daemon.FirePage], error) {
	q := daemon.FireQuery{Schedule: in.Schedule, Cursor: in.Cursor, Limit: in.Limit}
	for _, list := range in.Outcome {
		for o := range strings.SplitSeq(list, ",") {
			q.Outcomes = append(q.Outcomes, daemon.Outcome(o))
		}
	}
	if err := q.Since.UnmarshalText([]byte(in.Since)); err != nil {
		return nil, notATime("since")
	}
	page, err := s.client(ctx).Fires(ctx, q)
	return &body[daemon.FirePage]{page}, err
}
