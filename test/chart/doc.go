// Package chart runs the pods of the Helm chart, as far as Podman does. It has tests only, owns no goroutine, and leaves no container.
package chart
