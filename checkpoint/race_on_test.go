//go:build race

package checkpoint

// effort divides what exhaustive tests do: the race detector makes each step ten times dearer.
const effort = 13
