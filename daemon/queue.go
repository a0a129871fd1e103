package daemon

// queue holds the events that wait for a transaction. One that cannot be
// applied must not stop the renewal of the lease (S7). So:
//
//   - together: all that wait share one commit;
//   - after a failure the renewal goes alone;
//   - then those events go one by one, and one that fails three times on its
//     own is set aside.
type queue struct {
	items    []pending
	mode     queueMode
	suspects int // items at the head that took part in a failure
}

type pending struct {
	ev     Event
	repeat bool // it was in a turn that failed: it may have been committed
	tries  int  // failures alone
}

type queueMode int

const (
	together queueMode = iota
	renewalAlone
	oneByOne
)

// Bounds of one transaction, and of what may fail alone.
const (
	maxBatch = 256
	maxTries = 3
)

func (q *queue) push(ev Event) { q.items = append(q.items, pending{ev: ev}) }

func (q *queue) len() int { return len(q.items) }

// batch returns how many events the next turn takes from the head.
func (q *queue) batch() int {
	switch q.mode {
	case renewalAlone:
		return 0
	case oneByOne:
		return min(1, len(q.items))
	}
	return min(maxBatch, len(q.items))
}

// succeeded drops the n events of a committed turn.
func (q *queue) succeeded(n int) {
	q.items = q.items[n:]
	q.suspects = max(0, q.suspects-n)
	switch {
	case q.suspects > 0:
		q.mode = oneByOne
	default:
		q.mode = together
	}
}

// failed keeps the n events of a failed turn and returns those that are set
// aside.
func (q *queue) failed(n int) []pending {
	for i := range q.items[:n] {
		q.items[i].repeat = true
	}
	if q.mode != oneByOne {
		q.suspects = max(q.suspects, n)
		q.mode = renewalAlone
		return nil
	}
	q.mode = renewalAlone
	if n == 0 {
		return nil
	}
	if q.items[0].tries++; q.items[0].tries < maxTries {
		return nil
	}
	aside := q.items[:1]
	q.items = q.items[1:]
	q.suspects = max(0, q.suspects-1)
	return aside
}

// drop empties the queue and returns what was in it.
func (q *queue) drop() []pending {
	items := q.items
	*q = queue{}
	return items
}
