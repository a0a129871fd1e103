package daemon

import "time"

// crockford is base 32 without i, l, o and u, in lower case: ids sort as text.
const crockford = "0123456789abcdefghjkmnpqrstvwxyz"

// NewID returns prefix, "_" and a 26 character ULID: 48 bits of now in
// milliseconds, then 80 bits of chance. Ids drawn later sort later, as far as
// the wall clock does. It is drawn when an event is accepted, never inside a
// Step, so that a Step that is repeated repeats the id (S6).
func NewID(prefix string, now time.Time, c Chance) string {
	hi, lo := uint64(now.UnixMilli())<<16|c.Uint64()&0xffff, c.Uint64()
	var out [26]byte
	for i := 25; i >= 0; i-- {
		out[i] = crockford[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return prefix + "_" + string(out[:])
}

// newStamp returns what makes one attempt at the lease row recognisable.
func newStamp(c Chance) string {
	x := c.Uint64()
	var out [13]byte
	for i := range out {
		out[i] = crockford[x&31]
		x >>= 5
	}
	return string(out[:])
}
