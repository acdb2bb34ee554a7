// Package archtest holds the rules of the tree as tests: which package may import which, how large files and functions may be, and
// that every package explains itself. It guarantees nothing at run time, is linked into nothing and owns no goroutine.
package archtest
