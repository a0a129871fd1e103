package main

import (
	"context"
	"fmt"
	"os"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/proc"
)

// banner is what every changing verb says first: which store it is about to
// change, who is active there, and where the person sits (O8). At 3 a.m. two
// terminals look alike.
type banner struct {
	Store   string `json:"store"`
	Lineage int64  `json:"lineage"`
	Active  string `json:"active,omitempty" doc:"host that holds the lease"`
	Epoch   int64  `json:"epoch"`
	Host    string `json:"you_are_on"`
	Via     viaDoc `json:"via"`
}

func (b banner) String() string {
	active := "active: none"
	if b.Active != "" {
		active = fmt.Sprintf("active: %s epoch %d", b.Active, b.Epoch)
	}
	text := fmt.Sprintf("store %s lineage %d, %s, you are on %s", b.Store, b.Lineage, active, b.Host)
	switch {
	case b.Via.Context != "" && b.Via.Address != "":
		text += fmt.Sprintf(", context %s (%s)", b.Via.Context, b.Via.Address)
	case b.Via.Address != "":
		text += ", through " + b.Via.Address
	}
	return text
}

// connectToChange is connect for a verb that changes something. It says the
// banner on stderr before anything is done; with -o json the answer carries it.
// A job that calls exocomp is no person: nobody reads it there.
func (a *app) connectToChange(ctx context.Context) (daemon.Client, func(), *banner, error) {
	c, done, err := a.connect(ctx, true)
	if err != nil || os.Getenv(proc.MarkerName) != "" {
		return c, done, nil, err
	}
	l, err := c.Lease(ctx)
	if err != nil {
		done()
		return nil, nil, nil, err
	}
	b := a.bannerOf(l.Lease)
	if !a.json() {
		a.say("%s", b)
	}
	return c, done, &b, nil
}

func (a *app) bannerOf(l daemon.Lease) banner {
	b := banner{Store: l.StoreID[max(0, len(l.StoreID)-4):], Lineage: l.Lineage, Epoch: l.Epoch, Host: a.global.host, Via: a.via()}
	if l.State == daemon.LeaseHeld {
		b.Active = l.Host
	}
	return b
}
