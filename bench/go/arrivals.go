// The times of an open loop's calls: the same as those of the Rust peers (bench/method/src/load.rs).
package main

import (
	"math"
	"time"
)

func arrivals(perSecond float64, calls int) []time.Duration {
	state, due := uint64(0x9e3779b97f4a7c15), 0.0
	times := make([]time.Duration, calls)
	for n := range times {
		state += 0x9e3779b97f4a7c15
		z := state
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		fraction := float64((z^z>>31)>>11)/(1<<53) + 0x1p-52
		due += -math.Log(fraction) / perSecond
		times[n] = time.Duration(due * 1e9)
	}
	return times
}
