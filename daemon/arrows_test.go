package daemon_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/exocomp/exocomp"

// source is one Go file of the module.
type source struct {
	name string // from the root of the module
	pkg  string // its directory
	test bool
	file *ast.File
	fset *token.FileSet
}

func (s source) at(n ast.Node) string { return s.fset.Position(n.Pos()).String() }

func (s source) imports() []string {
	var out []string
	for _, imp := range s.file.Imports {
		path, _ := strconv.Unquote(imp.Path.Value)
		out = append(out, path)
	}
	return out
}

// sources parses the whole module.
func sources(t *testing.T) []source {
	t.Helper()
	var out []source
	root := ".."
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || hasGoMod(path)) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(filepath.ToSlash(path), "../")
		out = append(out, source{name: name, pkg: filepath.ToSlash(filepath.Dir(name)),
			test: strings.HasSuffix(name, "_test.go"), file: f, fset: fset})
		return nil
	})
	if err != nil || len(out) < 20 {
		t.Fatalf("read the module: %d files, %v", len(out), err)
	}
	return out
}

func hasGoMod(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// The core may import what has no clock, no file and no wire.
var coreMayImport = []string{"cmp", "context", "crypto/hmac", "crypto/sha256", "crypto/subtle", "encoding/base64",
	"encoding/hex", "encoding/json", "errors", "fmt", "hash/crc32", "log/slog", "maps", "math", "reflect", "slices",
	"strconv", "strings", "sync/atomic", "time", "github.com/benbjohnson/clock", module + "/daemon/cron"}

// The leaves that the core may import, and what each of them may. They keep its
// rules: no clock, no goroutine, no file, no range over a map.
var leafMayImport = map[string][]string{
	"daemon/cron": {"fmt", "hash/fnv", "math/bits", "strconv", "strings", "time", "time/tzdata"},
}

// What the core and the simulator must not call, and what to do instead.
var insteadOf = map[string]string{
	"time.Now":       "take now as an argument; Step reads the clock once",
	"time.Since":     "subtract from the now that was passed down",
	"time.Until":     "subtract the now that was passed down",
	"time.Sleep":     "return the instant from Next",
	"time.After":     "return the instant from Next",
	"time.AfterFunc": "return the instant from Next",
	"time.Tick":      "return the instant from Next",
	"time.NewTimer":  "return the instant from Next",
	"time.NewTicker": "return the instant from Next",
	"time.Local":     "use UTC; zones belong to schedules",
}

func TestTheCoreHasNoIOAndNoClock(t *testing.T) {
	for _, s := range sources(t) {
		may := leafMayImport[s.pkg]
		if s.pkg == "daemon" {
			may = coreMayImport
		}
		if may == nil || s.test {
			continue
		}
		for _, path := range s.imports() {
			if !slices.Contains(may, path) {
				t.Errorf("%s: the core imports %s; declare a port in ports.go and put that into an adapter", s.name, path)
			}
		}
		wantStill(t, s, s.name == "daemon/loop.go")
	}
}

// The simulator may print and hash; it may not wait, and chance has one source.
func TestTheSimulatorIsDeterministic(t *testing.T) {
	for _, s := range sources(t) {
		if !strings.HasPrefix(s.pkg, "sim") || s.test {
			continue
		}
		wantStill(t, s, false)
		for _, path := range s.imports() {
			switch {
			case path == "math/rand/v2" && s.name == "sim/kernel/choices.go":
			case strings.HasPrefix(path, "math/rand"), path == "crypto/rand":
				t.Errorf("%s imports %s; draw from kernel.Choices", s.name, path)
			case path == "os", path == "net", path == "sync", strings.HasPrefix(path, "os/"):
				t.Errorf("%s imports %s; hand it in from the test or the command", s.name, path)
			}
		}
	}
}

// wantStill reports goroutines, waits and clocks. Only loop.go may select.
func wantStill(t *testing.T, s source, maySelect bool) {
	t.Helper()
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			t.Errorf("%s: a goroutine; return an effect, or put it into an adapter", s.at(n))
		case *ast.SelectStmt:
			if !maySelect {
				t.Errorf("%s: a select; only daemon/loop.go waits: tell an event instead", s.at(n))
			}
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok {
				if instead, bad := insteadOf[x.Name+"."+n.Sel.Name]; bad {
					t.Errorf("%s: %s.%s; %s", s.at(n), x.Name, n.Sel.Name, instead)
				}
			}
		}
		return true
	})
}

// No decision may depend on the order of a map, which differs from run to run.
// A range over one is allowed where its comment says that order does not matter.
func TestNoDecisionRangesOverAMap(t *testing.T) {
	for _, s := range sources(t) {
		core := s.pkg == "daemon" || leafMayImport[s.pkg] != nil || strings.HasPrefix(s.pkg, "sim")
		if !core || s.test {
			continue
		}
		maps := mapNames(s.file)
		text, err := os.ReadFile(filepath.Join("..", s.name))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(text), "\n")
		ast.Inspect(s.file, func(n ast.Node) bool {
			r, ok := n.(*ast.RangeStmt)
			if !ok {
				return true
			}
			name := lastName(r.X)
			line := lines[s.fset.Position(r.Pos()).Line-1]
			if name != "" && maps[name] && !strings.Contains(line, "order does not matter") {
				t.Errorf("%s: range over the map %s; range over slices.Sorted(maps.Keys(%[2]s))", s.at(r), name)
			}
			return true
		})
	}
}

// mapNames returns the names of fields, variables and parameters that are maps.
func mapNames(f *ast.File) map[string]bool {
	names := map[string]bool{"Env": true, "Labels": true} // of Spec and Job, from everywhere
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			if _, ok := n.Type.(*ast.MapType); ok {
				for _, id := range n.Names {
					names[id.Name] = true
				}
			}
		case *ast.AssignStmt:
			for i, rhs := range n.Rhs {
				if lit, ok := rhs.(*ast.CompositeLit); ok && i < len(n.Lhs) {
					if _, isMap := lit.Type.(*ast.MapType); isMap {
						names[lastName(n.Lhs[i])] = true
					}
				}
			}
		}
		return true
	})
	return names
}

func lastName(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return x.Sel.Name
	}
	return ""
}

// mayImport says, for each part of the tree, which other parts it may import.
// Adapters meet in cmd alone.
func mayImport(from, to string, test bool) bool {
	adapter := strings.HasPrefix(from, "daemon/")
	switch {
	case strings.HasPrefix(to, "cmd"):
		return false
	case from == to, strings.HasPrefix(from, "cmd/"), strings.HasPrefix(from, "scripts/"):
		return true
	case from == "daemon":
		return leafMayImport[to] != nil || test && strings.HasPrefix(to, "daemon/")
	case leafMayImport[from] != nil:
		return false
	case adapter:
		return to == "daemon" || test && strings.HasPrefix(to, "daemon/")
	case from == "sim/kernel":
		return false
	case from == "sim":
		return to == "daemon" || to == "daemon/cron" || to == "sim/kernel" || test && strings.HasPrefix(to, "daemon/")
	case from == "drills" || strings.HasPrefix(from, "drills/"):
		return true
	}
	return false
}

func TestArrows(t *testing.T) {
	for _, s := range sources(t) {
		for _, path := range s.imports() {
			to, ours := strings.CutPrefix(path, module+"/")
			if !ours || mayImport(s.pkg, to, s.test) {
				continue
			}
			instead := "declare an interface where it is needed, and wire it in cmd/exocomp"
			if strings.HasPrefix(to, "sim") {
				instead = "nothing under daemon/ knows the simulator; hand it a port"
			}
			t.Errorf("%s imports %s; %s", s.name, to, instead)
		}
	}
}

func TestNoPackageIsADrawer(t *testing.T) {
	for _, s := range sources(t) {
		for part := range strings.SplitSeq(s.pkg, "/") {
			if slices.Contains([]string{"util", "utils", "common", "helpers", "mock", "mocks", "internal", "misc"}, part) {
				t.Errorf("%s: package %q says nothing; name it after its noun or its technology", s.name, part)
			}
		}
	}
}
