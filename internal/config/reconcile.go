package config

import "time"

func (r *report) reconcile(c *Reconcile) {
	if c.Every != 0 {
		r.Between("reconcile.every", c.Every, 10*time.Minute, 30*24*time.Hour)
	}
}
