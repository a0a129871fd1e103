package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/api"
	"github.com/exocomp/exocomp/daemon/linux"
)

// front is the API on its two doors: the socket for this user, and TCP.
type front struct {
	servers []*http.Server
	tcp     net.Listener // nil with --listen none
	socket  net.Listener
	log     *slog.Logger
}

// listen binds both doors before the lease is taken: a port that is in use must
// not cost a takeover.
func (s *service) listen() (*front, error) {
	f := &front{log: s.log}
	srv := api.New(api.Options{Desk: s.desk(), Store: s.store, Clock: s.clock, Snapshot: s.loop.Snapshot,
		Log: s.log, Offer: s.loop.Offer})
	var err error
	if f.socket, err = linux.ListenUnix(s.a.global.state(apiSocket)); err != nil {
		return nil, dirError(s.a.global.stateDir, err)
	}
	f.serve(srv.HTTPServer(true), f.socket)
	if s.f.listen == "none" || s.f.listen == "" {
		return f, nil
	}
	if f.tcp, err = net.Listen("tcp", s.f.listen); err != nil {
		f.close()
		return nil, listenError(s.f.listen, err)
	}
	f.serve(srv.HTTPServer(false), f.tcp)
	return f, nil
}

func listenError(addr string, err error) error {
	e := daemon.Errorf(daemon.Failed, "listen on %s: %w", addr, err)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return e.Hint("another program has that port: give --listen another, or --listen none")
	case errors.Is(err, os.ErrPermission):
		return e.Hint("ports below 1024 need privileges: give --listen a higher one")
	}
	return e.Hint("give --listen as host:port, such as 127.0.0.1:7373, or none")
}

func (f *front) serve(srv *http.Server, l net.Listener) {
	f.servers = append(f.servers, srv)
	go func() {
		if err := srv.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			f.log.Error("the API stopped", "err", err)
		}
	}()
}

// address is what an operator types into --remote.
func (f *front) address() string {
	if f.tcp == nil {
		return f.socket.Addr().String()
	}
	return "http://" + f.tcp.Addr().String()
}

// close ends both doors: what is being answered gets a second.
func (f *front) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, srv := range f.servers {
		if err := srv.Shutdown(ctx); err != nil {
			srv.Close()
		}
	}
	f.socket.Close()
}

func dialer(path string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) { return linux.DialUnix(ctx, path) }
}
