package main

import (
	"encoding/pem"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// tlsFront NAME URL puts https before a daemon, as a proxy on another host would:
// its address goes to NAME.url, and the authority that signed it to NAME.pem.
func tlsFront(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: tlsfront name url")
	}
	to, err := url.Parse(strings.TrimSpace(args[1]))
	ts.Check(err)
	srv := httptest.NewTLSServer(httputil.NewSingleHostReverseProxy(to))
	ts.Defer(srv.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	ts.Check(os.WriteFile(ts.MkAbs(args[0]+".pem"), ca, 0o600))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]+".url"), []byte(srv.URL), 0o600))
}
