package linux

import "github.com/exocomp/exocomp/daemon"

// Site is the daemon.Site port: the lock of this host, and what its kernel knows
// about the locks on the store.
type Site struct {
	*Lock
	Database string // path of the store
}

var _ daemon.Site = Site{}

// Blocker implements daemon.Site.
func (s Site) Blocker() string {
	owner, held, err := LockOwner(s.Database)
	if err != nil || !held {
		return ""
	}
	return owner.String()
}
