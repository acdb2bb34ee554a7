package retention

import "time"

// Window is a part of the day, from the first time since midnight to the second; over midnight if the second is smaller. The zero
// value is the whole day.
type Window struct{ From, To time.Duration }

const day = 24 * time.Hour

// opens is the time until the window opens; 0 when it is open. closes is how long it is open from then on.
func (w Window) opens(now time.Duration) (opens, closes time.Duration) {
	if w.From == w.To {
		return 0, day
	}
	length := (w.To - w.From + day) % day
	if inside := (now - w.From + day) % day; inside < length {
		return 0, length - inside
	}
	return (w.From - now + day) % day, length
}
