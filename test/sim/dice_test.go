package sim

import (
	"math/rand/v2"
	"time"
)

// dice is a stream of random decisions. Each is made from the seed, who decides, and for which of his decisions, so that
// the order in which goroutines come by does not matter.
type dice struct{ state uint64 }

func mix(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func newDice(seed uint64, actor string, keys ...uint64) *dice {
	h := mix(seed)
	for i := range len(actor) {
		h = (h ^ uint64(actor[i])) * 0x100000001b3
	}
	h = mix(h)
	for _, k := range keys {
		h = mix(h ^ mix(k))
	}
	return &dice{h}
}

func (d *dice) next() uint64 {
	d.state += 0x9e3779b97f4a7c15
	return mix(d.state)
}

func (d *dice) float() float64 { return float64(d.next()>>11) / (1 << 53) }

func (d *dice) n(limit int) int { return int(d.next() % uint64(limit)) }

// in returns a number from low to high.
func (d *dice) in(low, high int) int { return low + d.n(high-low+1) }

func (d *dice) chance(p float64) bool { return d.float() < p }

// between has nanoseconds, so that two of them are hardly ever equal.
func (d *dice) between(low, high time.Duration) time.Duration {
	return low + time.Duration(d.next()%uint64(high-low+1))
}

func (d *dice) rand() *rand.Rand { return rand.New(rand.NewPCG(d.next(), d.next())) }

// pick returns one of the choices.
func pick[T any](d *dice, choices ...T) T { return choices[d.n(len(choices))] }

// hash makes a key of a text.
func hash(text string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 0x100000001b3
	}
	return mix(h)
}
