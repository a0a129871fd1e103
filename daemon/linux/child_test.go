package linux

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/sqlite"
)

// A test that needs another process runs this binary again, in a role.

const roleName = "EXOCOMP_TEST_ROLE"

// roles are what another process of this binary can be, by name.
var roles = map[string]func(args []string) error{
	"answer":   func(args []string) error { return AnswerLockProbe(last(args), os.Stdin, os.Stdout) },
	"liar":     liar,
	"keepsake": keepsake,
	"mute":     func([]string) error { _, err := io.Copy(io.Discard, os.Stdin); return err },
	"gone":     func([]string) error { return nil },
	"writer":   writeLocked,
}

func TestMain(m *testing.M) {
	role, ok := roles[os.Getenv(roleName)]
	if !ok {
		os.Exit(m.Run())
	}
	if err := role(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func last(args []string) string { return args[len(args)-1] }

func inRole(role string, args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), roleName+"="+role, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	return cmd
}

// liar answers like AnswerLockProbe, but for one question: the question, a
// number and the answer stand in LIE. "try 2=got" lies at the second try.
func liar(args []string) error {
	f, err := os.OpenFile(last(args), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return answer(f)
}

func answer(f *os.File) (err error) {
	question, lie, _ := strings.Cut(os.Getenv("LIE"), "=")
	asked := map[string]int{}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		verb, _, _ := strings.Cut(lines.Text(), " ")
		asked[verb]++
		said := lie
		if question != fmt.Sprintf("%s %d", verb, asked[verb]) {
			if said, err = answerProbe(f, lines.Text()); err != nil {
				return err
			}
		}
		fmt.Println(said)
	}
	return nil
}

// keepsake answers by another process, which keeps its locks after keepsake was
// killed: until the test closes the pipe that all of them have.
func keepsake(args []string) error {
	until := os.NewFile(3, "until")
	if len(args) == 2 {
		cmd := inRole("keepsake", "again", args[0], last(args))
		cmd.Stdin, cmd.Stdout, cmd.ExtraFiles = os.Stdin, os.Stdout, []*os.File{until}
		return cmd.Run()
	}
	f, err := os.OpenFile(last(args), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := answer(f); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, until)
	return err
}

// writeLocked holds the write lock of a store from the word "locked" on until
// its stdin ends.
func writeLocked(args []string) error {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, sqlite.Options{Path: last(args), Follow: true})
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Update(ctx, daemon.Guard{}, func(daemon.Tx) error {
		fmt.Println("locked")
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	})
}
