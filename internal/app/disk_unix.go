//go:build linux || darwin

package app

import "syscall"

// freeBytes is what an ordinary user may still write on the file system of a directory.
func freeBytes(dir string) (uint64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return s.Bavail * uint64(s.Bsize), nil
}
