package cron

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// What cannot be understood in one way only is refused, and so is what could
// never be due: a schedule that is silently wrong is found out by the backup
// that is not there. Every refusal names the field and says what to write
// instead, in about 200 characters.

const (
	maxBytes = 200
	maxEvery = 366 * 24 * time.Hour
	layout   = "minute hour day-of-month month day-of-week"
)

// field is one of the five.
type field struct {
	name   string
	lo, hi int
	names  []string // of lo, lo+1, ...
	allows string
}

var fields = [...]field{
	{name: "minute", hi: 59, allows: "minutes are 0-59"},
	{name: "hour", hi: 23, allows: "hours are 0-23, and midnight is 0"},
	{name: "day-of-month", lo: 1, hi: 31, allows: "days of the month are 1-31"},
	{name: "month", lo: 1, hi: 12, allows: "months are 1-12 or jan-dec",
		names: []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{name: "day-of-week", hi: 7, allows: "days of the week are 0-7 (0 and 7 are Sunday) or sun-sat",
		names: []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
}

var macros = map[string]string{
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
	"@monthly":  "0 0 1 * *",
	"@weekly":   "0 0 * * 0",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@hourly":   "0 * * * *",
}

// Parse reads five fields, one of @yearly, @annually, @monthly, @weekly,
// @daily, @midnight, @hourly, or @every and a Go duration of whole seconds
// (1s to 8784h, which is 366 days). Case does not matter but in the duration.
func Parse(s string) (Expr, error) {
	if len(s) > maxBytes {
		return Expr{}, fmt.Errorf("the cron expression has %d bytes, and %d are allowed; split it into several schedules",
			len(s), maxBytes)
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return Expr{}, fmt.Errorf("the cron expression has %s at byte %d; write plain ASCII, with spaces between fields",
				quote(firstRune(s[i:])), i)
		}
	}
	words := strings.Fields(s)
	switch {
	case len(words) == 0:
		return Expr{}, fmt.Errorf("the cron expression is empty; write 5 fields (%s), or @daily", layout)
	case strings.Contains(words[0], "="):
		return Expr{}, fmt.Errorf("the cron expression begins with %s; remove that: "+
			"the time zone is a setting of the schedule, not part of the expression", quote(words[0]))
	case words[0][0] == '@':
		return parseMacro(words)
	case len(words) != len(fields):
		return Expr{}, wrongCount(len(words))
	}
	return parseFields(words)
}

func firstRune(s string) string {
	for i := range s {
		if i > 0 {
			return s[:i]
		}
	}
	return s
}

func wrongCount(n int) error {
	if n < len(fields) {
		return fmt.Errorf("the cron expression has %d of 5 fields (%s); write * for any", n, layout)
	}
	return fmt.Errorf("the cron expression has %d fields, and 5 are allowed (%s); remove seconds, years, user and command "+
		"(for seconds there is @every 30s)", n, layout)
}

func parseMacro(words []string) (Expr, error) {
	name := strings.ToLower(words[0])
	switch {
	case name == "@every":
		return parseEvery(words[1:])
	case name == "@reboot":
		return Expr{}, fmt.Errorf("@reboot is refused: it is no point in time; " +
			"let the host's service manager enqueue the job when it starts")
	case macros[name] == "":
		return Expr{}, fmt.Errorf("%s is not known; write @yearly, @annually, @monthly, @weekly, @daily, @midnight, "+
			"@hourly or @every DURATION", quote(words[0]))
	case len(words) > 1:
		return Expr{}, fmt.Errorf("%s stands alone, and %s follows it; remove one of them", name, quote(words[1]))
	}
	e, err := parseFields(strings.Fields(macros[name]))
	e.text = name
	return e, err
}

func parseEvery(words []string) (Expr, error) {
	const remedy = "write it like @every 90s, @every 15m or @every 36h"
	if len(words) != 1 {
		return Expr{}, fmt.Errorf("@every takes one duration, and has %d; %s", len(words), remedy)
	}
	d, err := time.ParseDuration(words[0])
	switch {
	case err != nil:
		return Expr{}, fmt.Errorf("@every %s is not a duration (units are h, m, s); %s", quote(words[0]), remedy)
	case d < time.Second || d > maxEvery:
		return Expr{}, fmt.Errorf("@every %s is not within 1s and 8784h (366 days); %s", quote(words[0]), remedy)
	case d%time.Second != 0:
		return Expr{}, fmt.Errorf("@every %s is not in whole seconds; %s", quote(words[0]), remedy)
	}
	return Expr{text: "@every " + d.String(), every: d}, nil
}

func parseFields(words []string) (Expr, error) {
	var sets [len(fields)]uint64
	var star [len(fields)]bool
	for i, f := range fields {
		words[i] = strings.ToLower(words[i])
		set, err := f.parse(words[i])
		if err != nil {
			return Expr{}, err
		}
		sets[i], star[i] = set, words[i][0] == '*'
	}
	if sets[4]>>7&1 != 0 {
		sets[4] = sets[4]&^(1<<7) | 1
	}
	e := Expr{text: strings.Join(words, " "), minute: sets[0], hour: sets[1], dom: sets[2], month: sets[3], dow: sets[4],
		either: !star[2] && !star[4], fixed: !star[0] && !star[1]}
	if !e.possible() {
		return Expr{}, fmt.Errorf("day-of-month %s never comes in month %s, so this would never be due; "+
			"write days that its months have (feb has 29 at most)", quote(words[2]), quote(words[3]))
	}
	return e, nil
}

// possible says whether a day of e exists. In 400 years each date, 29 February
// too, falls on each day of the week.
func (e Expr) possible() bool {
	if e.either {
		return true
	}
	for m := 1; m <= 12; m++ {
		if dom, _ := nextBit(e.dom, 1); e.month>>m&1 != 0 && dom <= daysIn(2000, m) {
			return true
		}
	}
	return false
}

// parse reads a field in lower case into a set: bit n says that it names n.
func (f field) parse(s string) (uint64, error) {
	var set uint64
	for item := range strings.SplitSeq(s, ",") {
		if item == "" {
			return 0, fmt.Errorf("%s %s has an empty item in its list; remove the comma", f.name, quote(s))
		}
		bits, err := f.item(item)
		if err != nil {
			return 0, err
		}
		set |= bits
	}
	return set, nil
}

// item reads "*", a number, a name or a range, and the step behind it.
func (f field) item(s string) (uint64, error) {
	span, stepText, stepped := strings.Cut(s, "/")
	lo, hi, err := f.span(s, span)
	if err != nil {
		return 0, err
	}
	step := 1
	if stepped {
		if span != "*" && !strings.Contains(span, "-") {
			return 0, fmt.Errorf("%s %s has a step without a range; write %d-%d/N or */N", f.name, quote(s), lo, f.hi)
		}
		if step, err = f.step(s, stepText); err != nil {
			return 0, err
		}
	}
	var set uint64
	for n := lo; n <= hi; n += step {
		set |= 1 << n
	}
	return set, nil
}

// span reads what stands before the step of the item s.
func (f field) span(s, text string) (lo, hi int, err error) {
	if text == "*" {
		return f.lo, f.hi, nil
	}
	from, to, isRange := strings.Cut(text, "-")
	if lo, err = f.number(s, from); err != nil || !isRange {
		return lo, lo, err
	}
	if hi, err = f.number(s, to); err != nil {
		return 0, 0, err
	}
	if lo > hi {
		return 0, 0, fmt.Errorf("%s %s runs backwards; write %s", f.name, quote(s), f.split(lo, hi))
	}
	return lo, hi, nil
}

// split says a range that runs backwards in a way that runs forwards.
func (f field) split(lo, hi int) string {
	if f.hi == 7 && hi == 0 {
		return fmt.Sprintf("%d-7 (7 is Sunday, too)", lo)
	}
	return fmt.Sprintf("the range in two: %d-%d,%d-%d", lo, f.hi, f.lo, hi)
}

func (f field) step(s, text string) (int, error) {
	n, ok := atoi(text)
	switch {
	case !ok:
		return 0, fmt.Errorf("%s %s has a step that is no number; write it like */5 or 1-9/2", f.name, quote(s))
	case n == 0:
		return 0, fmt.Errorf("%s %s has the step 0; write a step of at least 1", f.name, quote(s))
	case n > f.hi:
		return 0, fmt.Errorf("%s %s has a step above %d and would name one value only; write that value, or @every DURATION",
			f.name, quote(s), f.hi)
	}
	return n, nil
}

// number reads one number or name of the item s.
func (f field) number(s, text string) (int, error) {
	for i, name := range f.names {
		if text == name {
			return f.lo + i, nil
		}
	}
	n, ok := atoi(text)
	switch {
	case ok && n >= f.lo && n <= f.hi:
		return n, nil
	case ok:
		return 0, fmt.Errorf("%s %s is out of range: %s", f.name, quote(s), f.allows)
	case strings.Contains(text, "*"):
		return 0, fmt.Errorf("%s %s has a * inside; it stands alone or before a step, like */5", f.name, quote(s))
	}
	if sign, remedy := foreign(text); sign != "" {
		return 0, fmt.Errorf("%s %s has a %s, which is not in cron(8); %s", f.name, quote(s), sign, remedy)
	}
	return 0, fmt.Errorf("%s %s is not understood: %s", f.name, quote(s), f.allows)
}

// foreign returns the sign of another scheduler's dialect in text, and what to
// write for it.
func foreign(text string) (sign, remedy string) {
	bare := strings.TrimRight(text, "0123456789") // of weekdays: sun, mon, ...
	for _, day := range fields[4].names {
		bare = strings.TrimPrefix(bare, day)
	}
	bare = strings.TrimLeft(bare, "0123456789")
	switch {
	case strings.Contains(text, "?"):
		return "?", "write *"
	case strings.Contains(text, "#"):
		return "#", "write the weekday, and let the job check the date"
	case bare == "w" || bare == "lw":
		return "W", "write 1-5 as the day-of-week, and let the job check the date"
	case bare == "l":
		return "L", "for the last day write 28-31 as the day-of-month, and let the job check the date"
	}
	return "", ""
}

// atoi reads a number without a sign. A large one may come back as 9999.
func atoi(s string) (int, bool) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	if len(strings.TrimLeft(s, "0")) > 4 {
		return 9999, true
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}

// quote returns the first 20 bytes of what somebody wrote, in ASCII.
func quote(s string) string {
	if len(s) > 20 {
		return strconv.QuoteToASCII(s[:20]) + "..."
	}
	return strconv.QuoteToASCII(s)
}
