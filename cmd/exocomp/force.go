package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/sqlite"
)

// forceFlags are the flags of serve that depose a holder. They are given on the
// command line and nowhere else: what stands in a file or in the environment is
// given again at every restart.
type forceFlags struct {
	epoch   string
	live    bool
	hostOff string
}

// askForEpoch is the value of a bare --force-lease.
const askForEpoch = "ask"

func (f *forceFlags) register(fl *pflag.FlagSet) {
	fl.StringVar(&f.epoch, "force-lease", "", "depose the holder of that `EPOCH`, which exocomp lease shows; without a value it asks, at a terminal")
	fl.Lookup("force-lease").NoOptDefVal = askForEpoch
	fl.BoolVar(&f.live, "depose-live", false, "with --force-lease: also a holder that renews its lease")
	fl.StringVar(&f.hostOff, "old-host-is-off", "", "with --force-lease: you answer for it that this `HOST` is off, so its jobs need not be waited for")
}

// force turns the flags into what the core is told.
func (f forceFlags) force(ctx context.Context, a *app) (daemon.Force, error) {
	out := daemon.Force{DeposeLive: f.live, OldHostOff: f.hostOff, By: userName() + "@" + a.global.host}
	var err error
	switch f.epoch {
	case "":
	case askForEpoch:
		out.Epoch, err = a.askWhomToDepose(ctx)
	default:
		out.Epoch, err = strconv.ParseInt(f.epoch, 10, 64)
		if err != nil || out.Epoch < 1 {
			err = daemon.Errorf(daemon.Usage, "--force-lease=%.40q: an epoch is a number from 1 on", f.epoch).
				Hint("exocomp lease shows the epoch of the holder")
		}
	}
	if err == nil && (out.Epoch != 0 || f.epoch == "") {
		err = out.Check()
	}
	return out, err
}

// askWhomToDepose shows the holder to the person at the terminal, who must know
// its host by name. It returns 0 when there is nobody to depose.
func (a *app) askWhomToDepose(ctx context.Context) (int64, error) {
	tty, err := a.terminal()
	if err != nil {
		return 0, daemon.Errorf(daemon.Usage, "--force-lease without an epoch asks back, and there is no terminal to ask at").
			Hint("name the epoch that exocomp lease shows: --force-lease=EPOCH")
	}
	defer tty.Close()
	row, err := a.readLease(ctx)
	if err != nil {
		return 0, err
	}
	if row.State == daemon.LeaseReleased {
		a.say("the lease is released: there is nobody to depose")
		return 0, nil
	}
	fmt.Fprintf(tty, "The lease is held by host %s (pid %d, epoch %d), renewed at %s by its clock.\n"+
		"Its jobs may still run. Deposing it does not end them before its leash does.\n"+
		"Type the name of that host to depose it: ", row.Host, row.PID, row.Epoch, stamp(row.RenewedMs))
	line, err := bufio.NewReader(io.LimitReader(tty, 1024)).ReadString('\n')
	if err != nil && line == "" {
		return 0, daemon.Errorf(daemon.Usage, "nothing was typed: nobody is deposed").Hint("start again without --force-lease")
	}
	if got := strings.TrimSpace(line); got != row.Host {
		return 0, daemon.Errorf(daemon.Usage, "%.40q is not the host that holds the lease: nobody is deposed", got).
			Hint("start again, and type %s if that is the one", row.Host)
	}
	return row.Epoch, nil
}

// readLease reads the row from the file, without a daemon.
func (a *app) readLease(ctx context.Context) (row daemon.Lease, err error) {
	s, err := sqlite.Open(ctx, sqlite.Options{Path: a.global.data(storeFile), ReadOnly: true, Follow: true})
	if err != nil {
		return row, err
	}
	defer s.Close()
	err = s.View(ctx, func(r daemon.Reader) error {
		row, _, err = daemon.Leases.Get(ctx, r, 1)
		return err
	})
	return row, err
}

// terminal returns the terminal of the person who started this command, whatever
// became of its stderr.
func (a *app) terminal() (*os.File, error) {
	if in, ok := a.stdin.(*os.File); !ok || !isTerminal(in) {
		return nil, errors.New("stdin is no terminal")
	}
	return os.OpenFile("/dev/tty", os.O_RDWR, 0)
}
