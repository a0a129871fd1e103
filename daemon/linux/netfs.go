package linux

import (
	"slices"
	"strings"
)

// networkTypes are the file systems whose files another host may have open: by
// a server, or by a disk that hosts share.
//
// virtiofs and 9p are among them. What a guest mounts so is a directory of its
// host, where the host and other guests may open the same file; and a guest's
// locks stay in the guest, unless the server was told otherwise.
var networkTypes = []string{
	"nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "coda", "9p", "virtiofs", "vboxsf", "vmhgfs", "prl_fs",
	"ceph", "glusterfs", "lustre", "gpfs", "beegfs", "orangefs", "pvfs2", "panfs", "wekafs",
	"ocfs2", "gfs", "gfs2", "acfs", "davfs", "fakeowner",
}

// networkFUSE are the programs behind fuse.NAME that speak to a server.
var networkFUSE = []string{
	"sshfs", "glusterfs", "ceph", "cephfs", "ceph-fuse", "s3fs", "goofys", "mount-s3", "mountpoint-s3", "s3ql", "gcsfuse", "blobfuse",
	"blobfuse2", "rclone", "davfs", "davfs2", "curlftpfs", "juicefs", "seaweedfs", "moosefs", "mfsmount", "mfs", "lizardfs",
	"beegfs", "gvfsd-fuse", "vmhgfs-fuse", "grpcfuse", "osxfs", "smbnetfs", "fusesmb", "afp", "dbxfs", "google-drive-ocamlfuse",
}

// networkMagics are what statfs(2) says of network file systems. It does not
// tell apart what lies behind FUSE, virtiofs too, so that one is not here.
var networkMagics = map[uint32]string{
	0x6969: "nfs", 0xff534d42: "cifs", 0xfe534d42: "smb3", 0x517b: "smbfs", 0x564c: "ncpfs", 0x5346414f: "afs", 0x6b414653: "afs",
	0x73757245: "coda", 0x01021997: "9p", 0x786f4256: "vboxsf", 0xbacbacbc: "vmhgfs", 0x00c36400: "ceph",
	0x0bd00bd0: "lustre", 0x47504653: "gpfs", 0x19830326: "beegfs", 0x20030528: "orangefs", 0xaad7aaea: "panfs",
	0x7461636f: "ocfs2", 0x01161970: "gfs2", 0x61636673: "acfs",
}

// Network says whether other hosts may have the files of m open.
func (m Mount) Network() bool {
	if slices.Contains(networkTypes, m.Type) {
		return true
	}
	program, ok := strings.CutPrefix(m.Type, "fuse.")
	if !ok && m.Type != "fuse" {
		return false
	}
	return slices.Contains(networkFUSE, program) || remote(m.Source)
}

// remote says whether a source names a server: host:/path, //host/share or a
// URL. It catches the FUSE programs that networkFUSE does not know.
func remote(source string) bool {
	host, path, ok := strings.Cut(source, ":")
	return strings.HasPrefix(source, "//") || ok && host != "" && !strings.Contains(host, "/") && strings.HasPrefix(path, "/")
}

// localLocks returns the mount option that keeps byte-range locks on this host,
// where the probe of two processes on one host cannot notice it.
func (m Mount) localLocks() string {
	var bad []string
	switch m.Type {
	case "nfs", "nfs4":
		bad = []string{"nolock", "local_lock=all", "local_lock=posix"}
	case "cifs", "smb3":
		bad = []string{"nobrl"}
	case "lustre":
		bad = []string{"localflock"}
	case "ocfs2", "gfs2":
		bad = []string{"localflocks"}
	}
	for _, option := range strings.Split(m.Options, ",") {
		if slices.Contains(bad, option) {
			return option
		}
	}
	return ""
}
