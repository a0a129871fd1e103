package api_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/api"
)

func TestErrorsComeBackAsTheyWere(t *testing.T) {
	var f failing
	x := f.rig(t)
	c := x.dialling(nil)
	for _, code := range slices.Sorted(maps.Keys(daemon.Meanings)) {
		f.set(daemon.Errorf(code, "thing %s", code).Hint("do %s", code))
		_, got := c.Enqueue(t.Context(), "", daemon.EnqueueRequest{Spec: daemon.Spec{Shell: "x"}})
		e, ok := errors.AsType[*daemon.Error](got)
		if !ok || e.Code != code || e.Msg != "thing "+string(code) || e.Remedy != "do "+string(code) {
			t.Errorf("%s came back as %#v", code, got)
		}
	}
}

func TestOddNamesStayNames(t *testing.T) {
	x := newRig(t)
	x.ended()
	for _, ref := range []string{"../status", "..", "1/logs", "1?x=1", "1#x", "%31", "", " "} {
		if j, err := x.dialling(nil).Job(t.Context(), ref); daemon.CodeOf(err) != daemon.NotFound {
			t.Errorf("job %q is %s, %v", ref, j.ID, err)
		}
	}
}

func TestMaintenanceWithoutATokenIsNotAsked(t *testing.T) {
	x := newRig(t)
	missing := daemon.Errorf(daemon.NoToken, "no token file").Hint("look for it")
	asked := 0
	c := x.dialling(func(o *api.ClientOptions) {
		o.Token, o.Dial = "", x.dial()
		o.MaintenanceToken = func() (string, error) { asked++; return "", missing }
	})
	if _, err := c.Status(t.Context()); err != nil || asked != 0 {
		t.Errorf("status asked for a token %d times, %v", asked, err)
	}
	if _, err := c.Cordon(t.Context(), "x", ""); !errors.Is(err, missing) || asked != 1 {
		t.Errorf("cordon: %v", err)
	}
}

func TestWhereATokenMayGo(t *testing.T) {
	find := func() (string, error) { return "exo_x", nil }
	dial := func(context.Context) (net.Conn, error) { return nil, errors.New("no") }
	tests := []struct {
		o    api.ClientOptions
		good bool
	}{
		{api.ClientOptions{BaseURL: "http://127.0.0.1:1", Token: "x"}, true},
		{api.ClientOptions{BaseURL: "http://[::1]:1", Token: "x"}, true},
		{api.ClientOptions{BaseURL: "http://localhost:1/under", Token: "x"}, true},
		{api.ClientOptions{BaseURL: "https://ops.example", Token: "x"}, true},
		{api.ClientOptions{BaseURL: "http://exocomp", Token: "x", Dial: dial}, true},
		{api.ClientOptions{BaseURL: "http://ops.example"}, false},
		{api.ClientOptions{BaseURL: "http://ops.example", Token: "x"}, false},
		{api.ClientOptions{BaseURL: "http://ops.example", MaintenanceToken: find}, false},
		{api.ClientOptions{BaseURL: "http://192.0.2.1:7373", Token: "x"}, false},
		{api.ClientOptions{BaseURL: "http://127.0.0.1.evil.example", Token: "x"}, false},
		{api.ClientOptions{BaseURL: "http://localhost.evil.example", Token: "x"}, false},
		{api.ClientOptions{BaseURL: "http://user:hunter2@127.0.0.1:1"}, false},
		{api.ClientOptions{BaseURL: "ftp://127.0.0.1"}, false},
		{api.ClientOptions{BaseURL: "127.0.0.1:7373"}, false},
		{api.ClientOptions{BaseURL: "http://"}, false},
		{api.ClientOptions{BaseURL: ""}, false},
	}
	for _, tt := range tests {
		_, err := api.NewClient(tt.o)
		if tt.good && err != nil || !tt.good && (daemon.CodeOf(err) != daemon.Usage || daemon.RemedyOf(err) == "") {
			t.Errorf("%s: %v", tt.o.BaseURL, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
	}
}

func TestWhatIsNotReached(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	mute, _ := script(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	abrupt, _ := script(t, hangsUp)
	half, _ := script(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, `{"id":`)
	})
	path := filepath.Join(t.TempDir(), "none")
	tests := []struct {
		name, url string
		dial      func(context.Context) (net.Conn, error)
		code      daemon.Code
	}{
		{"nobody listens", "http://" + gone.Addr().String(), nil, daemon.Unavailable},
		{"no socket", "http://exocomp", func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}, daemon.Unavailable},
		{"no TLS there", strings.Replace(abrupt, "http:", "https:", 1), nil, daemon.Unavailable},
		{"no answer", mute, nil, daemon.TimedOut},
		{"hung up", abrupt, nil, daemon.TimedOut},
		{"half an answer", half, nil, daemon.TimedOut},
	}
	for _, tt := range tests {
		c, err := api.NewClient(api.ClientOptions{BaseURL: tt.url, Dial: tt.dial, Name: "the-place"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		_, err = c.Job(ctx, "1")
		if daemon.CodeOf(err) != tt.code || !strings.Contains(err.Error(), "the-place") {
			t.Errorf("%s: %s: %v", tt.name, daemon.CodeOf(err), err)
		}
		if remedy := daemon.RemedyOf(err); tt.code == daemon.Unavailable &&
			(!strings.Contains(remedy, "exocomp serve") || !strings.Contains(remedy, "the-place")) {
			t.Errorf("%s: remedy %q", tt.name, remedy)
		}
		cancel()
		if _, err = c.Job(ctx, "1"); tt.code != daemon.Unavailable && !errors.Is(err, context.Canceled) && daemon.CodeOf(err) != daemon.TimedOut {
			t.Errorf("%s, cancelled: %v", tt.name, err)
		}
		c.Close()
	}
}

func TestWhatIsNoDaemon(t *testing.T) {
	elsewhere, visits := script(t, func(http.ResponseWriter, *http.Request) {})
	page := func(status int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, text)
		}
	}
	tests := []struct {
		name   string
		answer http.HandlerFunc
		code   daemon.Code
		text   string
	}{
		{"a page", page(200, "<html>"), daemon.Failed, "not as an exocomp daemon"},
		{"a proxy", page(502, "<html>Bad Gateway"), daemon.Failed, "502"},
		{"other JSON", page(404, `{"error":"x"}`), daemon.Failed, "404"},
		{"a redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere, http.StatusTemporaryRedirect)
		},
			daemon.Failed, "307"},
		{"too much", page(200, `{"id":"`+strings.Repeat("x", 17<<20)+`"}`), daemon.TooLarge, "16 MiB"},
		{"a code of the future", page(409, `{"status":409,"code":"of-the-future","detail":"no"}`), daemon.Conflict, "no"},
		{"a code nobody knows", page(418, `{"status":418,"code":"teapot","detail":"no"}`), daemon.Failed, "no"},
	}
	for _, tt := range tests {
		url, _ := script(t, tt.answer)
		c, err := api.NewClient(api.ClientOptions{BaseURL: url, Token: "exo_x"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Job(t.Context(), "1")
		if daemon.CodeOf(err) != tt.code || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: %s: %v", tt.name, daemon.CodeOf(err), err)
		}
		c.Close()
	}
	if visits.Load() != 0 {
		t.Error("a redirect was followed")
	}
}

func TestABaseMayHaveAPath(t *testing.T) {
	got := make(chan string, 1)
	url, _ := script(t, func(w http.ResponseWriter, r *http.Request) {
		got <- r.URL.EscapedPath()
		_, _ = io.WriteString(w, "{}")
	})
	c, err := api.NewClient(api.ClientOptions{BaseURL: url + "/under/?x=1#y"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Job(t.Context(), "a/b %")
	if path := <-got; err != nil || path != "/under/api/v1/jobs/a%2Fb%20%25" {
		t.Errorf("%s, %v", path, err)
	}
}
