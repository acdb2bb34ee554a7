package server

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"
)

// What Zone knows of a zone: from zonePast before now to zoneAhead after it, which is more than the longest delay that a broker takes.
const (
	zonePast  = 24 * time.Hour
	zoneAhead = 8 * 24 * time.Hour
)

// Zone returns the time zone of the session (the system's where the session follows it), as it is from a day ago to eight days ahead: with its offset, or
// with both offsets and the time of the change, as at both ends of summer time. A change that is further away is found when Zone is called again, so call
// it now and then. known is what it returned before, nil at first: as long as that holds, one query is all.
func Zone(ctx context.Context, db Querier, known *time.Location) (*time.Location, error) {
	var name string
	var now int64 // seconds since 1970
	var before, after int
	first, last := -int64(zonePast/time.Second), int64(zoneAhead/time.Second)
	err := db.QueryRowContext(ctx, "SELECT IF(@@session.time_zone='SYSTEM', @@system_time_zone, @@session.time_zone), UNIX_TIMESTAMP(), "+
		offsetAt("UTC_TIMESTAMP()", first)+", "+offsetAt("UTC_TIMESTAMP()", last)).Scan(&name, &now, &before, &after)
	switch {
	case err != nil:
		return nil, err
	case known != nil && offset(known, now+first) == before && offset(known, now+last) == after:
		return known, nil
	case before == after:
		return time.FixedZone(name, before), nil
	}
	for low, high := now+first, now+last; ; {
		if high-low == 1 {
			return changing(name, before, after, high)
		}
		middle, at := (low+high)/2, 0
		if err := db.QueryRowContext(ctx, "SELECT "+offsetAt("TIMESTAMP'1970-01-01 00:00:00'", middle)).Scan(&at); err != nil {
			return nil, err
		}
		if at == before {
			low = middle
		} else {
			high = middle
		}
	}
}

// offsetAt is how many seconds the session's zone is east of UTC some seconds after a time of UTC; on a server that cannot convert times, as it is now.
func offsetAt(utc string, seconds int64) string {
	at := fmt.Sprintf("%s + INTERVAL %d SECOND", utc, seconds)
	return "COALESCE(TIMESTAMPDIFF(SECOND, " + at + ", CONVERT_TZ(" + at + ", '+00:00', @@session.time_zone)), ROUND(TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), NOW())/60)*60)"
}

func offset(zone *time.Location, at int64) int {
	_, seconds := time.Unix(at, 0).In(zone).Zone()
	return seconds
}

// changing is a zone that goes from one offset to another at a time, in the format of RFC 8536.
func changing(name string, before, after int, at int64) (*time.Location, error) {
	var b []byte
	header := func(times, types, letters uint32) {
		b = append(append(b, "TZif2"...), make([]byte, 15)...)
		for _, n := range []uint32{0, 0, 0, times, types, letters} {
			b = binary.BigEndian.AppendUint32(b, n)
		}
	}
	kind := func(offset int) {
		b = binary.BigEndian.AppendUint32(b, uint32(int32(offset)))
		b = append(b, 0, 0) // no summer time, the first abbreviation
	}
	header(0, 1, 1) // of the old format, which readers skip
	kind(0)
	b = append(b, 0)
	header(1, 2, uint32(len(name)+1))
	b = binary.BigEndian.AppendUint64(b, uint64(at))
	b = append(b, 1) // from then on the second kind
	kind(before)
	kind(after)
	b = append(append(b, name...), 0, '\n', '\n') // no rule for later changes
	return time.LoadLocationFromTZData(name, b)
}
