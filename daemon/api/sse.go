package api

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// writeWithin is how long a reader may take for one piece. It slows nobody but
// itself: the job writes to a file.
const writeWithin = 30 * time.Second

// patient writes pieces of a stream, each with a deadline of its own, and sends
// each at once.
type patient struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

func newPatient(w http.ResponseWriter) patient { return patient{w, http.NewResponseController(w)} }

func (p patient) write(b []byte) error {
	err := p.rc.SetWriteDeadline(time.Now().Add(writeWithin))
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := p.w.Write(b); err != nil {
		return err
	}
	return p.rc.Flush()
}

// sse writes server-sent events.
type sse struct{ patient }

func newSSE(w http.ResponseWriter) *sse {
	w.Header().Set("Content-Type", "text/event-stream")
	s := &sse{newPatient(w)}
	w.WriteHeader(http.StatusOK)
	_ = s.rc.Flush() // the headers tell the client that it is heard
	return s
}

func (s *sse) send(event, id string, doc any) error {
	data, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "event: %s\n", event)
	if id != "" {
		fmt.Fprintf(&b, "id: %s\n", id)
	}
	fmt.Fprintf(&b, "data: %s\n\n", data)
	return s.write(b.Bytes())
}

func (s *sse) comment(text string) error { return s.write([]byte(": " + text + "\n\n")) }

// message is one event as it is read.
type message struct {
	event, id string
	data      []byte
}

// maxMessage is more than the largest event that a server of ours sends: a
// frame of 1 MiB, each byte of it written as \u0000, and a few fields.
const maxMessage = 8 << 20

// errLarge says that an event does not end.
var errLarge = fmt.Errorf("an event is larger than %d bytes", maxMessage)

// messages reads server-sent events.
type messages struct{ in *bufio.Reader }

func newMessages(r io.Reader) *messages { return &messages{in: bufio.NewReaderSize(r, 64<<10)} }

// next returns the next event, over comments. io.EOF is a clean end,
// io.ErrUnexpectedEOF one in the middle of an event.
func (m *messages) next() (message, error) {
	var msg message
	begun := false
	for {
		line, err := m.line()
		switch {
		case errors.Is(err, io.EOF) && begun:
			return msg, io.ErrUnexpectedEOF
		case err != nil:
			return msg, err
		case len(line) == 0 && begun:
			return msg, nil
		case len(line)+len(msg.data) > maxMessage:
			return msg, errLarge
		}
		begun = msg.take(line) || begun
	}
}

// take adds one line to msg and says whether it belongs to an event.
func (msg *message) take(line []byte) bool {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "event":
		msg.event = string(value)
	case "id":
		msg.id = string(value)
	case "data":
		if msg.data != nil {
			msg.data = append(msg.data, '\n')
		}
		msg.data = append(msg.data, value...)
	default:
		return false
	}
	return true
}

func (m *messages) line() ([]byte, error) {
	var line []byte
	for {
		part, err := m.in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), nil
		case errors.Is(err, io.EOF) && len(line) > 0:
			return nil, io.ErrUnexpectedEOF
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(line) > maxMessage:
			return nil, errLarge
		}
	}
}
