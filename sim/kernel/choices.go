package kernel

import (
	"math/rand/v2"
	"time"
)

// Choices is the one source of chance: what a fault does, how long a thing
// takes, and the ids that the simulated code draws. Code that draws from
// anywhere else makes a run that cannot be repeated.
type Choices struct {
	rand  *rand.Rand
	drawn int
}

// NewChoices returns the choices of seed.
func NewChoices(seed uint64) *Choices {
	return &Choices{rand: rand.New(rand.NewPCG(seed, 0x65786f636f6d70))}
}

// Uint64 draws 64 bits.
func (c *Choices) Uint64() uint64 {
	c.drawn++
	return c.rand.Uint64()
}

// Drawn returns how many draws there were.
func (c *Choices) Drawn() int { return c.drawn }

// N draws from 0 to n-1.
func (c *Choices) N(n int) int { return int(c.Uint64() % uint64(n)) }

// Between draws a duration from lo to hi, both included.
func (c *Choices) Between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(c.Uint64()%uint64(hi-lo+1))
}

// OneIn says yes once in n times.
func (c *Choices) OneIn(n int) bool { return c.N(n) == 0 }
