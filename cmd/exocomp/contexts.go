package main

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v3"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/api"
)

// A context is a daemon elsewhere under a name: its address, and the token that
// goes there and nowhere else. All of a user's contexts stand in one file, which
// holds tokens or says where they are: nobody else may read it or write it, and
// it is replaced whole. The name "local" is this host and needs no entry.

// localContext is the name of this host among the contexts.
const localContext = "local"

// remoteContext is one entry of the file.
type remoteContext struct {
	Address      string `yaml:"address"`
	Token        string `yaml:"token,omitempty"`
	TokenFile    string `yaml:"token-file,omitempty"`
	CAFile       string `yaml:"ca-file,omitempty"`
	InsecureHTTP bool   `yaml:"insecure-http,omitempty"`
}

// contexts are what the file says.
type contexts struct {
	Current string                   `yaml:"current,omitempty"`
	Named   map[string]remoteContext `yaml:"contexts,omitempty"`
	path    string
}

const contextsHead = "# Kept by exocomp context. It holds tokens: let nobody else read it.\n"

var contextName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func checkContextName(name string) error {
	switch {
	case name == localContext:
		return daemon.Errorf(daemon.Usage, "context %q is this host, and always there", name).Hint("give the remote another name")
	case !contextName.MatchString(name):
		return daemon.Errorf(daemon.Usage, "context name %.40q: it is 1 to 64 letters, digits, dots, dashes and underscores, and begins with a letter or digit", name).
			Hint("give it a short name, such as prod")
	}
	return nil
}

// contextsPath is where this user's contexts are.
func contextsPath() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", daemon.Errorf(daemon.BadConfig, "find the contexts: %w", err).Hint("set HOME or XDG_CONFIG_HOME")
	}
	return filepath.Join(dir, "exocomp", "contexts.yaml"), nil
}

// readContexts reads the file. One that is not there, or lies in a home that is
// not this user's, has no contexts in it; nor has a user without a home, such as
// a unit's.
func readContexts() (contexts, error) {
	path, err := contextsPath()
	if err != nil {
		return contexts{}, nil
	}
	none := contexts{Named: map[string]remoteContext{}, path: path}
	f, err := os.Open(path)
	if _, see := os.Lstat(path); errors.Is(see, fs.ErrNotExist) || errors.Is(see, fs.ErrPermission) {
		return none, nil
	}
	if err != nil {
		return none, contextsError(path, err)
	}
	defer f.Close()
	if err := checkPrivate(f, path); err != nil {
		return none, err
	}
	text, err := io.ReadAll(io.LimitReader(f, configLimit+1))
	if err != nil || len(text) > configLimit {
		return none, contextsError(path, cmp.Or(err, fmt.Errorf("it is larger than %d bytes", configLimit)))
	}
	return parseContexts(path, text)
}

func contextsError(path string, err error) error {
	return daemon.Errorf(daemon.BadConfig, "the contexts in %s cannot be used: %w", path, err).
		Hint("put the file right, or move it away and add them again; --context local goes to this host without it")
}

// checkPrivate looks at the open file: its name may lead elsewhere a moment later.
func checkPrivate(f *os.File, path string) error {
	info, err := f.Stat()
	if err != nil {
		return contextsError(path, err)
	}
	if !info.Mode().IsRegular() {
		return contextsError(path, errors.New("it is no file"))
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return daemon.Errorf(daemon.BadConfig, "the contexts in %s belong to another user (uid %d), and this is %s", path, st.Uid, userName()).
			Hint("set HOME or XDG_CONFIG_HOME to a directory of your own, or say where to go: --remote=URL, --data-dir DIR")
	}
	if info.Mode().Perm()&0o077 != 0 {
		return daemon.Errorf(daemon.BadConfig, "the contexts in %s can be used by others (mode %04o), and hold tokens", path, info.Mode().Perm()).
			Hint("chmod 600 %s, and revoke the tokens if others could read them; --context local goes to this host without it", path)
	}
	return nil
}

func parseContexts(path string, text []byte) (contexts, error) {
	all := contexts{Named: map[string]remoteContext{}, path: path}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&all); err != nil && !errors.Is(err, io.EOF) {
		return all, contextsError(path, errors.New(withoutSecrets(err)))
	}
	for name, c := range all.Named {
		if err := checkContextName(name); err != nil {
			return all, contextsError(path, err)
		}
		if _, err := api.NewClient(api.ClientOptions{BaseURL: c.Address, ClearText: c.InsecureHTTP}); err != nil {
			return all, contextsError(path, fmt.Errorf("context %s: %w", name, err))
		}
	}
	if _, ok := all.Named[all.Current]; !ok && all.Current != "" {
		return all, contextsError(path, fmt.Errorf("the current one is %.60q, which is not among them", all.Current))
	}
	return all, nil
}

// withoutSecrets cuts what a YAML error quotes of the file, and our names in it.
func withoutSecrets(err error) string {
	text, _, _ := strings.Cut(err.Error(), "`")
	text, _, _ = strings.Cut(text, " in type ")
	return strings.TrimRight(strings.Join(strings.Fields(text), " "), " :")
}

// changeContexts reads the file, lets change work on it, and replaces it. Of two
// that change it at once the second waits, where the file system has locks.
func changeContexts(change func(*contexts) error) error {
	path, err := contextsPath()
	if err != nil {
		return err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return contextsError(path, err)
	}
	lock, err := os.Open(dir)
	if err != nil {
		return contextsError(path, err)
	}
	defer lock.Close()
	_ = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX) // without locks the last writer wins
	all, err := readContexts()
	if err != nil {
		return err
	}
	if err := change(&all); err != nil {
		return err
	}
	return all.replace(path)
}

// replace writes the file beside the old one and renames it.
func (all contexts) replace(path string) error {
	text, err := yaml.Marshal(all)
	if err != nil {
		return contextsError(path, err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".contexts-") // 0600
	if err != nil {
		return contextsError(path, err)
	}
	defer os.Remove(f.Name()) // gone already when all went well
	_, err = f.WriteString(contextsHead + string(text))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return contextsError(path, err)
	}
	return syncDir(filepath.Dir(path))
}

// get returns a context that must be there.
func (all contexts) get(name string) (remoteContext, error) {
	c, ok := all.Named[name]
	if !ok {
		e := daemon.Errorf(daemon.NotFound, "there is no context %.60q in %s", name, cmp.Or(all.path, "a home: there is none"))
		if like := nearest(name, append(all.names(), localContext)); like != "" {
			return c, e.Hint("did you mean %s? All: exocomp context list", like)
		}
		return c, e.Hint("exocomp context list shows them; exocomp context add makes one")
	}
	return c, nil
}

// token returns the token that goes to the context and nowhere else.
func (c remoteContext) token() (string, error) {
	if c.TokenFile != "" {
		return readToken(c.TokenFile)
	}
	if c.Token == "" {
		return "", daemon.Errorf(daemon.NoToken, "the context has no token").Hint("add it again: exocomp context add --replace")
	}
	return c.Token, nil
}

// authorities reads the CA file, nil when none is named. code is for a file that
// holds none.
func (c remoteContext) authorities(code daemon.Code) (*x509.CertPool, error) {
	if c.CAFile == "" {
		return nil, nil
	}
	info, err := os.Stat(c.CAFile)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > 1<<20) {
		err = errors.New("it is no file of at most 1 MiB")
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(c.CAFile)
	}
	pool := x509.NewCertPool()
	if err == nil && !pool.AppendCertsFromPEM(text) {
		err = errors.New("it holds no certificate in PEM")
	}
	if err != nil {
		return nil, daemon.Errorf(code, "the CA file %s cannot be used: %w", c.CAFile, err).
			Hint("name the certificate of the authority that signed the daemon's")
	}
	return pool, nil
}
