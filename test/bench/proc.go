package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tick is the unit of CPU time in /proc: the kernel's USER_HZ, which is 100 on every Linux that Go supports.
const tick = 10 * time.Millisecond

// process is a row of /proc: its parent, and its CPU time with that of the children that it has waited for.
type process struct {
	parent int
	cpu    time.Duration
}

// cpu is the CPU time of processes and of all that live below them.
func cpu(roots ...int) (time.Duration, error) {
	if len(roots) == 0 {
		return 0, nil
	}
	all, err := processes()
	if err != nil {
		return 0, err
	}
	for _, r := range roots {
		if _, ok := all[r]; !ok {
			return 0, fmt.Errorf("process %d is gone", r)
		}
	}
	var sum time.Duration
	for pid, p := range all {
		for at := pid; at > 1; at = all[at].parent {
			if slices.Contains(roots, at) {
				sum += p.cpu
				break
			}
		}
	}
	return sum, nil
}

func processes() (map[int]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	all := map[int]process{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue // no process
		}
		text, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has ended since
		}
		if err != nil {
			return nil, err
		}
		if all[pid], err = parseStat(string(text)); err != nil {
			return nil, fmt.Errorf("process %d: %w", pid, err)
		}
	}
	return all, nil
}

// parseStat reads /proc/PID/stat. The name of the program is in parentheses and may have any bytes in it.
func parseStat(text string) (p process, err error) {
	const parent, firstTime, endTimes = 1, 11, 15 // behind the name
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(f) < endTimes {
		return p, fmt.Errorf("/proc has no times in %q", text)
	}
	if p.parent, err = strconv.Atoi(f[parent]); err != nil {
		return p, err
	}
	for _, v := range f[firstTime:endTimes] {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return p, err
		}
		p.cpu += time.Duration(n) * tick
	}
	return p, nil
}

// resident is the memory of processes that is in RAM, in MiB, without those below them.
func resident(pids ...int) (mib float64, err error) {
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if err != nil {
			return 0, err
		}
		f := strings.Fields(string(text))
		if len(f) < 2 {
			return 0, fmt.Errorf("process %d: its statm is %q", pid, text)
		}
		pages, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("process %d: %w", pid, err)
		}
		mib += float64(pages*int64(os.Getpagesize())) / (1 << 20)
	}
	return mib, nil
}

// load1 is the load of the last minute.
func load1() (float64, error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), " ")
	return strconv.ParseFloat(first, 64)
}
