// Package bench measures the whole relay, as a process, against real servers on this machine: `make bench`. Its benchmarks
// are not run by `make test`, and nothing in them fails for being slow.
//
// Each prints what docs/benchmarks.md shows: percentiles, CPU and memory of the relay's process, and in the same run the
// ceilings that this machine has (reading the log without doing anything, producing without a source), so that figures of
// different machines compare as ratios. BENCH_BEFORE names a commit whose build takes turns with this source's. -short makes loads
// smaller, to see that all of this works.
//
// Goroutines: those of the load, which end with the benchmark.
package bench
