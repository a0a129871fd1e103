package daemon

import (
	"errors"
	"fmt"
)

// Code is what kind of failure an Error is. There is one table of what each
// means to a shell and to an HTTP client; nobody else decides that.
type Code string

// The codes, in the order of their exit codes.
const (
	Failed      Code = "failed"
	Usage       Code = "usage"
	Invalid     Code = "invalid"
	TooLarge    Code = "too-large"
	NotFound    Code = "not-found"
	Conflict    Code = "conflict"
	Reused      Code = "key-reused"
	Unavailable Code = "unavailable"
	TimedOut    Code = "timed-out"
	NoToken     Code = "unauthorized"
	Forbidden   Code = "forbidden"
	Held        Code = "lease-held"
	StoodDown   Code = "stood-down"
	BadConfig   Code = "bad-config"
)

// Meaning is what a Code means outside.
type Meaning struct {
	Exit   int // of the command line
	Status int // of HTTP
}

// Meanings is the one table of exit codes and HTTP statuses.
var Meanings = map[Code]Meaning{
	Failed:      {1, 500},
	Usage:       {2, 400},
	Invalid:     {2, 422},
	TooLarge:    {2, 413},
	NotFound:    {4, 404},
	Conflict:    {5, 409},
	Reused:      {5, 422},
	Unavailable: {6, 503},
	TimedOut:    {7, 504},
	NoToken:     {8, 401},
	Forbidden:   {8, 403},
	Held:        {75, 503},
	StoodDown:   {76, 503},
	BadConfig:   {78, 500},
}

// MeaningOf returns what a code means outside. One that is not in the table is
// a failure: a code of a newer daemon must not end a script with 0.
func MeaningOf(c Code) Meaning {
	if m, ok := Meanings[c]; ok {
		return m
	}
	return Meanings[Failed]
}

// Exit codes that no Error carries.
const (
	ExitWatchdog = 77  // the watchdog ended a daemon that hung past its trust
	ExitOwn      = 125 // run and logs -f failed themselves; the job's code is unknown
)

// Error is a failure that a person or a program will act on. Msg names the
// thing and the rule; Remedy says what to do about it.
type Error struct {
	Code   Code
	Msg    string
	Remedy string
	Cause  error
}

// Errorf returns an Error. %w works as in fmt.Errorf.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Msg: err.Error(), Cause: errors.Unwrap(err)}
}

// Hint sets the remedy and returns e.
func (e *Error) Hint(format string, args ...any) *Error {
	e.Remedy = fmt.Sprintf(format, args...)
	return e
}

func (e *Error) Error() string { return e.Msg }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// CodeOf returns the Code of err: that of the first Error in its chain, or
// Failed.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return Failed
}

// RemedyOf returns the remedy in err's chain, or "".
func RemedyOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Remedy
	}
	return ""
}

// ErrFenced is what a Store answers to a guarded Update whose guard no longer
// holds the lease. Nothing was written.
var ErrFenced = errors.New("fenced: another epoch holds the lease")

// ErrBusy is what a Store answers when another process kept the write lock for
// longer than the attempt could wait. Nothing was written.
var ErrBusy = errors.New("another process holds the write lock of the store")

// errLapsed is our own refusal to write once trust has run out (S8).
var errLapsed = errors.New("trust in the lease ran out before the write")
