package cron

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // so that a host without zone files knows the zones, too
)

// Zone returns the zone of an IANA name, such as Europe/Berlin: from the host's
// zone files where it has them (they may be newer), else from those built in.
// What means another zone on another host is refused, such as Local.
func Zone(name string) (*time.Location, error) {
	const remedy = "write an IANA name such as Europe/Berlin, or UTC"
	switch {
	case name == "":
		return nil, fmt.Errorf("the time zone is empty; %s", remedy)
	case name == "Local" || name == "localtime" || name == "posixrules":
		return nil, fmt.Errorf("time zone %q differs from host to host; %s", name, remedy)
	case !zoneName(name):
		return nil, fmt.Errorf("time zone %s is not a name; %s", quote(name), remedy)
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("time zone %s is not known; %s", quote(name), remedy)
	}
	return loc, nil
}

// zoneName says whether s can be the name of a zone, and is no path to another
// file. The trees posix/ and right/ are copies; the latter counts leap seconds.
func zoneName(s string) bool {
	if len(s) > 64 || strings.Contains(s, "..") || strings.HasPrefix(s, "posix/") || strings.HasPrefix(s, "right/") {
		return false
	}
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || !strings.ContainsRune("0123456789_+-/", rune(c))) {
			return false
		}
	}
	return !strings.HasSuffix(s, "/")
}

// span is a stretch of time in which a zone has one offset: the instants
// [start, end). Two that follow each other may have the same offset.
type span struct {
	start, end int64 // past and future where it has no bound
	offset     int64 // seconds east of UTC
}

// spanAt returns the span around an instant.
func spanAt(at int64, loc *time.Location) span {
	t := time.Unix(at, 0).In(loc)
	_, offset := t.Zone()
	start, end := t.ZoneBounds()
	s := span{past, future, int64(offset)}
	if !start.IsZero() {
		s.start = start.Unix()
	}
	if !end.IsZero() {
		s.end = end.Unix()
	}
	// Where a zone goes by a rule, package time ends the last span of each year
	// after 365 days. On 31 December of a leap year that lies behind us.
	if s.end <= at {
		s.end = time.Date(t.UTC().Year()+1, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	}
	return s
}

// mark returns the highest wall that was reached before s, or less than any
// wall that matters from from on.
func (s span) mark(from int64, loc *time.Location) int64 {
	mark := int64(past)
	if from-s.start > settled {
		return mark
	}
	for t := s.start; t > s.start-settled; {
		before := spanAt(t-1, loc)
		mark = max(mark, t+before.offset)
		t = before.start
	}
	return mark
}
