package main

import (
	"context"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/exocomp/exocomp/daemon/linux"
	"github.com/exocomp/exocomp/daemon/proc"
)

// lockprobeCmd is the second process of a lock probe. Nobody types it.
func (a *app) lockprobeCmd() *cobra.Command {
	return &cobra.Command{
		Use:    "lockprobe FILE",
		Short:  "answer a lock probe (started by serve and init)",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return linux.AnswerLockProbe(args[0], a.stdin, a.stdout)
		},
	}
}

// self makes a command of the very file that this process runs.
func (a *app) self(args ...string) *exec.Cmd {
	return &exec.Cmd{Path: ownPath(), Args: append([]string{"exocomp", "--host", a.global.host}, args...),
		Env: proc.SpawnEnv(os.Environ()), Stderr: a.stderr}
}

// ownPath is the file that this process runs: the one under the same name may be
// another version by now.
func ownPath() string {
	path, err := os.Executable()
	if err != nil || !sameFile(path, "/proc/self/exe") {
		return "/proc/self/exe"
	}
	return path
}

// mountTable is where the mounts of this process are read; tests give another.
var mountTable = linux.MountTable

// checkState refuses a state directory that other hosts can see.
func (a *app) checkState() error {
	mounts, _ := linux.ReadMounts(mountTable) // without it statfs tells
	return linux.RefuseNetworkState(mounts, a.global.stateDir)
}

// checkPlace refuses a data directory on a file system that cannot carry such a
// store: a shared one lives by locks that work between processes.
func (a *app) checkPlace(ctx context.Context, shared bool) error {
	mounts, _ := linux.ReadMounts(mountTable) // without it statfs tells
	if err := linux.RefuseNetworkStore(mounts, a.global.dataDir, shared); err != nil || !shared {
		return err
	}
	return linux.ProbeLocks(ctx, a.global.dataDir, a.self)
}
