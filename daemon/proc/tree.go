package proc

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// process is one line of /proc.
type process struct {
	pid, ppid, pgrp, session int
	state                    byte
	start                    string // in clock ticks since boot: with pid it names a process
}

// processes reads /proc. Processes that end meanwhile are left out.
func processes() ([]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var all []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, ok := readProcess(pid); ok {
			all = append(all, p)
		}
	}
	return all, nil
}

func readProcess(pid int) (process, bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, false
	}
	// The name is in parentheses and may hold anything, also a parenthesis.
	i := bytes.LastIndexByte(text, ')')
	f := strings.Fields(string(text[i+1:]))
	if i < 0 || len(f) < 20 {
		return process{}, false
	}
	p := process{pid: pid, state: f[0][0], start: f[19]}
	p.ppid, _ = strconv.Atoi(f[1])
	p.pgrp, _ = strconv.Atoi(f[2])
	p.session, _ = strconv.Atoi(f[3])
	return p, true
}

// children returns the pids of this process's children, dead ones too.
func children() []int {
	var pids []int
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err == nil && len(tasks) > 0 {
		for _, task := range tasks {
			text, err := os.ReadFile(task)
			if err != nil {
				continue // the thread ended
			}
			for _, f := range strings.Fields(string(text)) {
				if pid, err := strconv.Atoi(f); err == nil {
					pids = append(pids, pid)
				}
			}
		}
		slices.Sort(pids)
		return slices.Compact(pids)
	}
	all, err := processes() // a kernel without CONFIG_PROC_CHILDREN
	if err != nil {
		return nil
	}
	for _, p := range all {
		if p.ppid == os.Getpid() {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// descendants returns roots and all that descends from them.
func descendants(all []process, roots func(process) bool) []process {
	in := map[int]bool{}
	for grew := true; grew; {
		grew = false
		for _, p := range all {
			if !in[p.pid] && (in[p.ppid] || roots(p)) {
				in[p.pid] = true
				grew = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(p process) bool { return !in[p.pid] })
}

// isJob says whether pid was started as a job of the state dir of that marker.
func isJob(pid int, marker string) bool {
	return environment(pid, MarkerName) == marker && environment(pid, attemptName) != ""
}

// environment returns the value of name in the environment that pid was started
// with, or "".
func environment(pid int, name string) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return ""
	}
	for _, pair := range bytes.Split(text, []byte{0}) {
		if v, ok := bytes.CutPrefix(pair, []byte(name+"=")); ok {
			return string(v)
		}
	}
	return ""
}

// alive says whether p is more than a dead entry in the table.
func (p process) alive() bool { return p.state != 'Z' && p.state != 'X' }

// stopped says whether p was stopped by a signal or a debugger.
func (p process) stopped() bool { return p.state == 'T' || p.state == 't' }

// name is what stays the same of p as long as it lives.
func (p process) name() process { return process{pid: p.pid, start: p.start} }

// lives says whether p is alive now.
func (p process) lives() bool {
	now, ok := readProcess(p.pid)
	return ok && now.start == p.start && now.alive()
}

// kill sends sig to p, unless its pid belongs to another process by now. The
// zero process is nobody.
func (p process) kill(sig unix.Signal) {
	if p.pid <= 0 {
		return
	}
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if now, ok := readProcess(p.pid); ok && now.start == p.start {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0) // it may have ended
	}
}
