// Go's net/rpc and grpc-go as peers to measure. This is one side of one of them: it does what the bench
// orders, line by line, as the Rust peers do (bench/method/src/agent.rs).
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What a slow call sleeps in the server.
const slow = 10 * time.Millisecond

// What both sides agree on.
type setup struct {
	bytes  int
	result bool // The payload is the result alone.
}

// What a call asks for.
type what int

const (
	echo what = iota
	fetch
	slowly
)

// A peer. Its server goes on for as long as the process does.
type peer struct {
	transport, version string
	serve              func(setup) (address string, err error)
	connect            func(setup, string) (call, error)
}

// Makes one call. Safe for any number of goroutines at once.
type call func(what) error

var peers = map[string]peer{
	"go-net-rpc": {"tcp", runtime.Version(), serveNetRPC, connectNetRPC},
	"grpc-go":    {"http/2 tcp", grpcVersion, serveGRPC, connectGRPC},
}

func main() {
	if err := run(); err != nil {
		fail(err)
		os.Exit(1)
	}
}

// Why a peer is left out: it is not made for what it is asked.
type cannot string

func (why cannot) Error() string { return string(why) }

func fail(err error) {
	if why := cannot(""); errors.As(err, &why) {
		say("Cannot", why)
		return
	}
	say("Failed", err.Error())
}

func run() error {
	if len(os.Args) < 3 || os.Args[1] != "agent" {
		return errors.New("only the bench starts this")
	}
	peer, known := peers[os.Args[2]]
	if !known {
		return fmt.Errorf("no peer is called %q", os.Args[2])
	}
	flags := flag.NewFlagSet("agent", flag.ContinueOnError)
	bytes := flags.Int("bytes", 0, "payload")
	carry := flags.String("carry", "both", "which way the payload goes")
	mode := flags.String("mode", "block", "how to wait")
	core := flags.Int("core", -1, "the core to stay on")
	address := flags.String("address", "", "where the server is")
	flags.Int("outstanding", 1, "calls at once")
	if err := flags.Parse(os.Args[3:]); err != nil {
		return err
	}
	if err := stayOn(*core); err != nil {
		return err
	}
	if *mode != "block" {
		return cannot("it does not spin")
	}
	setup := setup{*bytes, *carry == "result"}
	ready := map[string]string{"address": "", "transport": peer.transport, "version": peer.version}
	if *address == "" {
		at, err := peer.serve(setup)
		if err != nil {
			return err
		}
		ready["address"] = at
		say("Ready", ready)
		return obey(server{})
	}
	call, err := peer.connect(setup, *address)
	if err != nil {
		return err
	}
	say("Ready", ready)
	return obey(client{setup, call})
}

// Keeps all threads on one core: by starting again, since a program inherits its thread's core.
func stayOn(core int) error {
	var now, want unix.CPUSet
	if core < 0 {
		return nil
	}
	runtime.LockOSThread()
	want.Set(core)
	if err := unix.SchedGetaffinity(0, &now); err != nil || now == want {
		return err
	}
	if err := unix.SchedSetaffinity(0, &want); err != nil {
		return err
	}
	return syscall.Exec("/proc/self/exe", os.Args, os.Environ())
}

// A line of JSON: one case of the bench's `Reply`.
func say(word string, value any) {
	line, _ := json.Marshal(map[string]any{word: value})
	os.Stdout.Write(append(line, '\n'))
}

func done() {
	var used unix.Timespec
	unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &used)
	say("Done", map[string]int64{"processor_time": used.Nano()})
}

type role interface {
	obey(words []string) error
}

// Follows orders until there are no more.
func obey(role role) error {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if err := role.obey(strings.Fields(lines.Text())); err != nil {
			fail(err)
		}
	}
	return nil
}

type server struct{}

var counting *counters

func (server) obey(words []string) error {
	switch {
	case len(words) == 2 && words[0] == "active":
		done()
	case len(words) == 2 && words[0] == "count":
		counting = count(words[1])
		done()
	case len(words) == 1 && words[0] == "counted" && counting != nil:
		say("Counts", counting.stop())
	default:
		return fmt.Errorf("unknown order %q", words)
	}
	return nil
}

type client struct {
	setup setup
	call  call
}

func (c client) obey(words []string) error {
	if len(words) < 3 {
		return fmt.Errorf("unknown order %q", words)
	}
	switch words[0] {
	case "warm":
		if _, _, err := c.load(words[1:]); err != nil {
			return err
		}
		done()
	case "time":
		latencies, took, err := c.load(words[1:])
		if err != nil {
			return err
		}
		if latencies != nil {
			say("Laps", latencies)
		} else {
			say("Took", took.Nanoseconds())
		}
	case "count":
		counters := count(words[1])
		_, _, err := c.load(words[2:])
		counts := counters.stop()
		if err != nil {
			return err
		}
		say("Counts", counts)
	default:
		return fmt.Errorf("unknown order %q", words)
	}
	return nil
}

// Makes the calls that the words say (bench/method/src/load.rs). Gives how long each took, or how long
// all of them took.
func (c client) load(words []string) ([]uint32, time.Duration, error) {
	var numbers []int
	for _, word := range words[1:] {
		number, err := strconv.Atoi(word)
		if err != nil {
			return nil, 0, err
		}
		numbers = append(numbers, number)
	}
	switch {
	case words[0] == "laps" && len(numbers) == 1:
		latencies, err := c.laps(numbers[0])
		return latencies, 0, err
	case (words[0] == "window" || words[0] == "polled") && len(numbers) == 2:
		began := time.Now()
		err := c.window(numbers[0], numbers[1])
		return nil, time.Since(began), err
	case words[0] == "open" && len(numbers) == 3:
		return c.open(float64(numbers[0]), numbers[1] == 1, numbers[2]), 0, nil
	case words[0] == "threads":
		return nil, 0, cannot("goroutines are no threads; they are what has calls outstanding")
	}
	return nil, 0, fmt.Errorf("no load: %q", words)
}

// The ordinary call.
func (c client) what() what {
	if c.setup.result {
		return fetch
	}
	return echo
}

func (c client) laps(calls int) ([]uint32, error) {
	latencies := make([]uint32, 0, calls)
	for what := c.what(); calls > 0; calls-- {
		began := time.Now()
		if err := c.call(what); err != nil {
			return nil, err
		}
		latencies = append(latencies, uint32(time.Since(began)))
	}
	return latencies, nil
}

// A goroutine for each call that is outstanding.
func (c client) window(outstanding, calls int) error {
	var (
		all   sync.WaitGroup
		left  atomic.Int64
		first = make(chan error, outstanding)
	)
	left.Store(int64(calls))
	for range outstanding {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if err := c.call(c.what()); err != nil {
					first <- err
					return
				}
			}
		})
	}
	all.Wait()
	select {
	case err := <-first:
		return err
	default:
		return nil
	}
}

// A goroutine for each call; the one that begins them lets the others run in between.
func (c client) open(perSecond float64, some bool, calls int) []uint32 {
	var (
		all       sync.WaitGroup
		arrivals  = arrivals(perSecond, calls)
		latencies = make([]uint32, calls)
		start     = time.Now()
	)
	short := 0
	for n, due := range arrivals {
		what, slot := c.what(), (*uint32)(nil)
		if some && n%100 == 50 {
			what = slowly
		} else {
			slot = &latencies[short]
			short++
		}
		for time.Since(start) < due {
			runtime.Gosched()
		}
		all.Go(func() {
			err := c.call(what)
			switch {
			case slot == nil:
			case err != nil: // Counts as having taken for ever.
				*slot = math.MaxUint32
			default:
				*slot = uint32(min(time.Since(start)-due, math.MaxUint32))
			}
		})
	}
	all.Wait()
	return latencies[:short]
}
