//go:build !race

package checkpoint

const effort = 1
