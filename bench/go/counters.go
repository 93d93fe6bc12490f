// Counts what this process does (bench/method/src/counters.rs): instructions and allocations, no system calls.
package main

import (
	"encoding/binary"
	"os"
	"runtime"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Each nil if it was not counted.
type counts struct {
	UserInstructions   *uint64 `json:"user_instructions"`
	KernelInstructions *uint64 `json:"kernel_instructions"`
	Syscalls           *uint64 `json:"syscalls"`
	Allocations        *uint64 `json:"allocations"`
}

type counters struct {
	allocations  uint64
	user, kernel []int
}

// Counts from now on.
func count(what string) *counters {
	counters := &counters{}
	if what == "instructions" {
		counters.user = ofThreads(unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv)
		counters.kernel = ofThreads(unix.PerfBitExcludeUser | unix.PerfBitExcludeHv)
		return counters
	}
	counters.allocations = allocations()
	return counters
}

func (c *counters) stop() counts {
	if c.allocations > 0 {
		made := allocations() - c.allocations
		return counts{Allocations: &made}
	}
	return counts{UserInstructions: sum(c.user), KernelInstructions: sum(c.kernel)}
}

func allocations() uint64 {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return memory.Mallocs
}

// A counter of instructions for each thread and those that it will start.
func ofThreads(bits uint64) []int {
	var counters []int
	threads, _ := os.ReadDir("/proc/self/task")
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			continue
		}
		event := unix.PerfEventAttr{
			Type:   unix.PERF_TYPE_HARDWARE,
			Config: unix.PERF_COUNT_HW_INSTRUCTIONS,
			Bits:   bits | unix.PerfBitInherit,
		}
		event.Size = uint32(unsafe.Sizeof(event))
		counter, err := unix.PerfEventOpen(&event, id, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if err == nil {
			counters = append(counters, counter)
		}
	}
	return counters
}

// Nil if there is no counter, or one cannot be read. Closes them.
func sum(counters []int) *uint64 {
	sum, known := uint64(0), len(counters) > 0
	for _, counter := range counters {
		var value [8]byte
		length, err := unix.Read(counter, value[:])
		known = known && err == nil && length == len(value)
		sum += binary.NativeEndian.Uint64(value[:])
		unix.Close(counter)
	}
	if !known {
		return nil
	}
	return &sum
}
