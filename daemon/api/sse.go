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

// sse writes server-sent events.
type sse struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

func newSSE(w http.ResponseWriter) *sse {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	s := &sse{w: w, rc: http.NewResponseController(w)}
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

func (s *sse) write(b []byte) error {
	if err := s.rc.SetWriteDeadline(time.Now().Add(writeWithin)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := s.w.Write(b); err != nil {
		return err
	}
	return s.rc.Flush()
}

// message is one event as it is read.
type message struct {
	event, id string
	data      []byte
}

// maxMessage is more than the largest event that a server of ours sends.
const maxMessage = 4 << 20

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
		if err != nil {
			if errors.Is(err, io.EOF) && begun {
				err = io.ErrUnexpectedEOF
			}
			return msg, err
		}
		if len(line) == 0 {
			if begun {
				return msg, nil
			}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "event":
			msg.event, begun = string(value), true
		case "id":
			msg.id, begun = string(value), true
		case "data":
			msg.data, begun = append(msg.data, value...), true
		}
	}
}

func (m *messages) line() ([]byte, error) {
	var line []byte
	for {
		part, err := m.in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return bytes.TrimRight(line, "\r\n"), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(line) > maxMessage:
			return nil, fmt.Errorf("an event is larger than %d bytes", maxMessage)
		}
	}
}
