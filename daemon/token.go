package daemon

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"hash/crc32"
	"strings"
)

// Token is a bearer token as the store knows it: never the secret, only its
// hash.
type Token struct {
	ID        string `db:"id" json:"id"`
	Name      string `db:"name" json:"name"`
	Scope     Scope  `db:"scope" json:"scope"`
	Hash      string `db:"hash" json:"-"` // SHA-256 of the whole token, hex
	CreatedMs Millis `db:"created_ms" json:"created_at"`
	ExpiresMs Millis `db:"expires_ms" json:"expires_at,omitempty"`
	RevokedMs Millis `db:"revoked_ms" json:"revoked_at,omitempty"`
	UsedMs    Millis `db:"last_used_ms" json:"last_used_at,omitempty" doc:"as of a minute"`
	By        string `db:"by_actor" json:"by,omitempty" doc:"who made it"`
}

// live says whether the token is good at now.
func (t Token) live(now Millis) bool {
	return t.ID != "" && t.RevokedMs == 0 && (t.ExpiresMs == 0 || now < t.ExpiresMs)
}

// Scope is what a principal may do. Each one includes those before it.
type Scope string

// The scopes.
const (
	Viewer   Scope = "viewer"
	Operator Scope = "operator"
	Admin    Scope = "admin"
)

var scopeRank = map[Scope]int{Viewer: 1, Operator: 2, Admin: 3}

// Allows says whether a principal of scope s may do what asks for want.
func (s Scope) Allows(want Scope) bool { return scopeRank[s] >= scopeRank[want] && scopeRank[want] > 0 }

// Principal is who asks.
type Principal struct {
	Actor  string
	Scope  Scope
	Bearer bool  // known by a bearer token, not only by the socket it came through
	Token  Token // the token of the store by which it is known, if it is by one
	Job    *Job  // known by a job's token: the job that asks
}

// A token is exo_<id>_<secret><checksum>: the prefix lets secret scanners find
// it, the checksum tells a typing error from a revoked token without a look-up.
const tokenPrefix = "exo_"

// NewToken draws a token and returns it with its row.
func NewToken(name string, scope Scope, now Millis, c Chance) (string, Token) {
	var raw [40]byte
	for i := range raw {
		raw[i] = byte(c.Uint64() >> 32)
	}
	id := hex.EncodeToString(raw[:4])
	body := tokenPrefix + id + "_" + hex.EncodeToString(raw[8:])
	text := body + checksum(body)
	return text, Token{ID: id, Name: name, Scope: scope, Hash: hashToken(text), CreatedMs: now}
}

func checksum(s string) string {
	sum := crc32.ChecksumIEEE([]byte(s))
	return hex.EncodeToString([]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
}

func hashToken(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// badToken is the one answer to every token that is not good: it does not tell
// a guesser which part was right.
func badToken() *Error {
	return Errorf(NoToken, "the token is not known, was revoked, has expired or is mistyped").
		Hint("the token of this store is in admin.token in its data directory")
}

// Authenticate returns who the bearer of text is.
func Authenticate(ctx context.Context, s Store, now Millis, text string) (Principal, error) {
	if strings.HasPrefix(text, jobTokenPrefix) {
		return authenticateJob(ctx, s, text)
	}
	if len(text) > 200 || len(text) < len(tokenPrefix)+9 || !strings.HasPrefix(text, tokenPrefix) {
		return Principal{}, badToken()
	}
	body, sum := text[:len(text)-8], text[len(text)-8:]
	id, _, ok := strings.Cut(strings.TrimPrefix(body, tokenPrefix), "_")
	if !ok || subtle.ConstantTimeCompare([]byte(checksum(body)), []byte(sum)) != 1 {
		return Principal{}, badToken()
	}
	var row Token
	err := s.View(ctx, func(r Reader) (err error) {
		row, _, err = Tokens.Get(ctx, r, id)
		return err
	})
	if err != nil {
		return Principal{}, err
	}
	good := subtle.ConstantTimeCompare([]byte(hashToken(text)), []byte(row.Hash)) == 1
	if !good || !row.live(now) {
		return Principal{}, badToken()
	}
	return Principal{Actor: "token:" + row.Name, Scope: row.Scope, Bearer: true, Token: row}, nil
}

// A job is known by a token made from its attempt and a key of the store, so
// that a daemon which starts anew knows the tokens that its predecessor gave
// out. It is good while the job lives.
const jobTokenPrefix = "exoj_"

// JobToken returns the token of one attempt.
func JobToken(key []byte, attempt string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(attempt))
	return jobTokenPrefix + attempt + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func authenticateJob(ctx context.Context, s Store, text string) (Principal, error) {
	attempt, _, ok := strings.Cut(strings.TrimPrefix(text, jobTokenPrefix), ".")
	if !ok || len(text) > 200 {
		return Principal{}, badToken()
	}
	var j Job
	var key Meta
	err := s.View(ctx, func(r Reader) (err error) {
		if key, _, err = Metas.Get(ctx, r, MetaJobKey); err != nil {
			return err
		}
		j, _, err = Jobs.First(ctx, r, Query{By: "jobs_attempt", Equal: []any{attempt}})
		return err
	})
	if err != nil {
		return Principal{}, err
	}
	raw, err := hex.DecodeString(key.Value)
	if err != nil || len(raw) < 16 {
		return Principal{}, badToken()
	}
	good := subtle.ConstantTimeCompare([]byte(JobToken(raw, attempt)), []byte(text)) == 1
	if !good || !j.State.Live() {
		return Principal{}, badToken()
	}
	return Principal{Actor: "job:" + j.ID, Scope: Operator, Bearer: true, Job: &j}, nil
}
