//go:build !faultpoints

package app

// instrument does nothing but in builds for crash tests.
func instrument(p Parts) Parts { return p }
