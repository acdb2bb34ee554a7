package canal

import "time"

// The packed temporal types of MySQL 5.6 and later: my_time.c, my_datetime_packed_to_binary and related functions. All are big
// endian; the fraction follows in (decimals+1)/2 bytes.

func appendDate(to []byte, year, month, day uint64) []byte {
	to = appendDigits(to, year, 4)
	to = append(to, '-')
	to = appendDigits(to, month, 2)
	to = append(to, '-')
	return appendDigits(to, day, 2)
}

func appendClock(to []byte, hour, minute, second uint64) []byte {
	to = appendDigits(to, hour, 2)
	to = append(to, ':')
	to = appendDigits(to, minute, 2)
	to = append(to, ':')
	return appendDigits(to, second, 2)
}

// fraction prints as many digits as the column has decimals. The bytes hold an even number of digits.
func fraction(data []byte, decimals int, to []byte) []byte {
	if decimals == 0 || decimals > 6 {
		return to
	}
	n := bigEndian(data)
	if decimals%2 == 1 {
		n /= 10
	}
	return appendDigits(append(to, '.'), n, decimals)
}

func datetime(data []byte, decimals int, to []byte) []byte {
	n := bigEndian(data[:5]) & 0x7fffffffff // without the sign bit: negative values do not exist
	days, clock := n>>17, n&0x1ffff
	months := days >> 5
	to = appendDate(to, months/13, months%13, days&31)
	to = appendClock(append(to, ' '), clock>>12, clock>>6&63, clock&63)
	return fraction(data[5:], decimals, to)
}

func timestamp(data []byte, decimals int, to []byte) []byte {
	seconds := bigEndian(data[:4])
	if seconds == 0 { // the zero date, not 1970
		to = append(to, "0000-00-00 00:00:00"...)
	} else {
		to = time.Unix(int64(seconds), 0).UTC().AppendFormat(to, time.DateTime)
	}
	return fraction(data[4:], decimals, to)
}
