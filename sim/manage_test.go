package sim_test

import (
	"testing"
	"time"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/sim"
)

// What an operator manages is done once, whichever answer of the store is lost.
func TestManagingIsDoneOnceWhateverTheStoreAnswers(t *testing.T) {
	for _, fault := range []sim.FaultKind{sim.None, sim.LostAnswer, sim.LostCommit, sim.Sick, sim.Busy} {
		t.Run(string(fault), func(t *testing.T) {
			w := newWorld(t, 7)
			alpha := w.Host("alpha")
			alpha.Serve()
			w.pass(3 * time.Second)
			c, ctx := alpha.Client(), t.Context()

			alpha.Fault(fault)
			made, err := c.CreateToken(ctx, daemon.TokenRequest{Name: "ci", Scope: daemon.Operator, ExpiresInMs: 3_600_000})
			if err != nil || made.Token.State != daemon.TokenLive || made.Secret == "" {
				t.Fatalf("create: %+v, %v", made, err)
			}
			alpha.Fault(fault)
			if ch, err := c.SetSetting(ctx, "jobs.default_timeout", "1h"); err != nil || ch.Setting.Value != "1h" {
				t.Errorf("set: %+v, %v", ch, err)
			}
			alpha.Fault(fault)
			if got, err := c.RevokeToken(ctx, "ci", false); err != nil || got.State != daemon.TokenRevoked {
				t.Errorf("revoke: %+v, %v", got, err)
			}
			page, err := c.Events(ctx, daemon.EventQuery{})
			if err != nil {
				t.Fatal(err)
			}
			seen := map[string]int{}
			for _, h := range page.Events {
				seen[h.Kind]++
			}
			if seen["token.created"] != 1 || seen["setting.changed"] != 1 || seen["token.revoked"] != 1 {
				t.Errorf("the history tells of %v", seen)
			}
		})
	}
}
