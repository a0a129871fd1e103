package linux

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/exocomp/exocomp/daemon"
)

const someMounts = `22 28 0:20 / /sys rw,nosuid shared:7 - sysfs sysfs rw
28 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw,errors=remount-ro
30 28 0:50 / /srv rw,relatime shared:9 master:3 propagate_from:2 - nfs4 filer:/export rw,vers=4.2,hard,local_lock=none
31 30 8:3 / /srv/local\040disk rw,relatime - xfs /dev/sdb1 rw
32 28 0:51 / /old rw - nfs filer:/old rw,vers=3,nolock,local_lock=all
33 28 0:52 / /mnt rw - tmpfs tmpfs rw
34 33 0:53 / /mnt rw - cifs //filer/share rw,vers=3.0,nobrl
35 28 0:54 / /data/hidden rw - nfs4 filer:/hidden rw
36 28 0:55 / /data rw - btrfs /dev/sdc rw,subvol=/
37 28 0:56 / /home/me/far rw - fuse.sshfs me@filer:/home rw
38 28 0:57 / /home/me/near rw - fuse.mergerfs /a:/b rw
39 28 0:58 / /dav rw - fuse https://filer/dav rw
40 28 0:59 / /auto rw - autofs systemd-1 rw,fd=51
41 28 0:60 / /odd\134name\011tab rw - ext4 /dev/sdd rw
`

func mounts(t *testing.T, text string) Mounts {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mountinfo")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ms, err := ReadMounts(path)
	if err != nil {
		t.Fatal(err)
	}
	return ms
}

// noLinks is a file system in which every name is there and none is a link.
func noLinks(string) (string, error) { return "", fs.ErrInvalid }

func TestAPathLiesOnTheMountThatCoversIt(t *testing.T) {
	ms := mounts(t, someMounts)
	tests := []struct {
		path, point, typ string
		network          bool
	}{
		{"/", "/", "ext4", false},
		{"/var/lib/exocomp", "/", "ext4", false},
		{"/srv", "/srv", "nfs4", true},
		{"/srv/exocomp", "/srv", "nfs4", true},
		{"/srvother", "/", "ext4", false},
		{"/srv/local disk/x", "/srv/local disk", "xfs", false},
		{"/srv/local", "/srv", "nfs4", true},
		{"/mnt/x", "/mnt", "cifs", true},
		{"/data/hidden/x", "/data", "btrfs", false},
		{"/home/me/far/x", "/home/me/far", "fuse.sshfs", true},
		{"/home/me/near/x", "/home/me/near", "fuse.mergerfs", false},
		{"/dav/x", "/dav", "fuse", true},
		{"/odd\\name\ttab/x", "/odd\\name\ttab", "ext4", false},
		{"/srv/../var", "/", "ext4", false},
	}
	for _, tt := range tests {
		m, _, ok := ms.locate(tt.path, noLinks)
		if !ok || m.Point != tt.point || m.Type != tt.typ || m.Network() != tt.network {
			t.Errorf("%s: %+v, network %v; want %s at %s, network %v", tt.path, m, m.Network(), tt.typ, tt.point, tt.network)
		}
	}
}

// links is a file system with these links, in which all else is there.
func links(to map[string]string) func(string) (string, error) {
	return func(path string) (string, error) {
		if target, ok := to[path]; ok {
			return target, nil
		}
		return noLinks(path)
	}
}

func TestLinksAreFollowedFromMountToMount(t *testing.T) {
	ms := mounts(t, someMounts)
	readlink := links(map[string]string{
		"/var/lib/a": "/srv/a", "/srv/back": "../var/b", "/srv/b": "c", "/loop": "/loop", "/two": "/var/lib/a/x"})
	tests := []struct{ path, real, typ string }{
		{"/var/lib/a/x", "/srv/a/x", "nfs4"},
		{"/srv/back/x", "/var/b/x", "ext4"},
		{"/srv/b/x", "/srv/c/x", "nfs4"},
		{"/two/y", "/srv/a/x/y", "nfs4"},
		{"/loop/x", "/loop/x", "ext4"},
	}
	for _, tt := range tests {
		if m, real, _ := ms.locate(tt.path, readlink); real != tt.real || m.Type != tt.typ {
			t.Errorf("%s: %s on %s, want %s on %s", tt.path, real, m.Type, tt.real, tt.typ)
		}
	}
}

func TestWhatIsNotThereYetLiesWhereItWillBeMade(t *testing.T) {
	ms := mounts(t, someMounts)
	readlink := func(path string) (string, error) {
		if strings.HasPrefix(path, "/srv/new") {
			return "", fs.ErrNotExist
		}
		return noLinks(path)
	}
	if m, real, _ := ms.locate("/srv/new/deep/dir", readlink); m.Type != "nfs4" || real != "/srv/new/deep/dir" {
		t.Errorf("%s on %+v", real, m)
	}
}

func TestAServerThatDoesNotAnswerEndsTheWalk(t *testing.T) {
	ms := mounts(t, someMounts)
	synctest.Test(t, func(t *testing.T) {
		dead := make(chan struct{})
		readlink := func(path string) (string, error) {
			if strings.HasPrefix(path, "/srv") {
				<-dead
			}
			return noLinks(path)
		}
		if m, _, ok := ms.locate("/srv/exocomp/x", readlink); !ok || m.Point != "/srv" {
			t.Errorf("%+v, %v", m, ok)
		}
		close(dead)
	})
}

func TestAChrootHasMountsWithoutARoot(t *testing.T) {
	ms := mounts(t, "31 30 0:50 / /srv rw - nfs filer:/export rw\n32 31 8:1 / /srv/x rw - ext4 /dev/sda rw\n")
	for path, want := range map[string]string{"/srv/y": "nfs", "/srv/x/y": "ext4", "/var": ""} {
		if m, _, ok := ms.locate(path, noLinks); m.Type != want || ok != (want != "") {
			t.Errorf("%s: %+v, %v", path, m, ok)
		}
	}
}

func TestTheRealTableKnowsWhereThisTestRuns(t *testing.T) {
	ms, err := ReadMounts(MountTable)
	if err != nil {
		t.Fatal(err)
	}
	if m, ok := ms.Of("/proc/self"); !ok || m.Type != "proc" {
		t.Errorf("/proc/self: %+v, %v", m, ok)
	}
	if _, err := ReadMounts(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no table: %v", err)
	}
}

func TestWithoutATableStatfsTells(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "made", "yet")
	if err := RefuseNetworkState(nil, dir); err != nil {
		t.Error(err)
	}
	for magic, name := range networkMagics {
		if !(Mount{Type: name}).Network() {
			t.Errorf("%#x: %s is no network file system", magic, name)
		}
	}
	if networkMagics[unix.NFS_SUPER_MAGIC] != "nfs" || networkMagics[unix.V9FS_MAGIC] != "9p" || networkMagics[unix.SMB2_SUPER_MAGIC] != "smb3" ||
		networkMagics[unix.CEPH_SUPER_MAGIC] != "ceph" || networkMagics[unix.OCFS2_SUPER_MAGIC] != "ocfs2" {
		t.Error("a magic number is wrong")
	}
}

func TestRefusalsNameTheMountAndTheRemedy(t *testing.T) {
	ms := mounts(t, someMounts)
	tests := []struct {
		name         string
		err          error
		want, remedy string
	}{
		{"state", RefuseNetworkState(ms, "/srv/state"), "the state directory /srv/state lies on a network file system " +
			"(nfs4 from filer:/export at /srv)", "--state-dir=/var/lib/exocomp-state"},
		{"state on a disk", RefuseNetworkState(ms, "/var/lib/state"), "", ""},
		{"store", RefuseNetworkStore(ms, "/srv/data", false), "the data directory /srv/data lies on a network file system " +
			"(nfs4 from filer:/export at /srv)", "--shared-store"},
		{"shared store", RefuseNetworkStore(ms, "/srv/data", true), "", ""},
		{"store on a disk", RefuseNetworkStore(ms, "/data/x", false), "", ""},
		{"shared store on a disk", RefuseNetworkStore(ms, "/data/x", true), "", ""},
		{"NFS 3 without locks", RefuseNetworkStore(ms, "/old/x", true), "option nolock", "vers=4.2"},
		{"CIFS without locks", RefuseNetworkStore(ms, "/mnt/x", true), "option nobrl", "without nobrl"},
	}
	for _, tt := range tests {
		if tt.want == "" {
			if tt.err != nil {
				t.Errorf("%s: %v", tt.name, tt.err)
			}
			continue
		}
		refused(t, tt.name, tt.err, tt.want)
		if !strings.Contains(daemon.RemedyOf(tt.err), tt.remedy) {
			t.Errorf("%s: remedy %q, want %q", tt.name, daemon.RemedyOf(tt.err), tt.remedy)
		}
	}
}
