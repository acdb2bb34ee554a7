// Package bench measures the whole relay, as a process, against real servers on this machine: `make bench`. `make test` does not
// run its benchmarks, and none fails because it is slow.
//
// Each prints figures of docs/benchmarks.md: percentiles, CPU and memory of the relay's process, and in the same run the ceilings
// of this machine (reading the log without any work, producing without a source), so that figures of different machines compare
// as ratios. BENCH_BEFORE names a commit whose build runs alternately with this source's. -short reduces the loads, as a quick
// check that everything works.
//
// Goroutines: those of the load, which end with the benchmark.
package bench
