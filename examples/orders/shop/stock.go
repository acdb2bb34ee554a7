package shop

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Stock is the fast copy of the stock in Redis. For each product there are, in one slot of a cluster:
//
//	stock:{product}          hash: available, epoch
//	pending:{product}        sorted set: tokens of requests whose order is not known to be placed, by the time of the request
//	token:{product}:TOKEN    what became of a request: ok:EPOCH:QUANTITY, sold out, released; gone after a day
type Stock struct{ Client redis.UniversalClient }

// The answers of the scripts other than ok:EPOCH:QUANTITY.
const (
	soldOut  = "sold out"
	released = "released"
	missing  = "missing"
)

// Errors of the stock. ErrMissing is temporary: the check recreates the stock.
var (
	ErrSoldOut  = errors.New("sold out")
	ErrReleased = errors.New("the request was closed, and its reservation given back")
	ErrMissing  = errors.New("the stock of the product is not in Redis yet")
)

// reserve answers a repeated token with its first answer.
var reserve = redis.NewScript(`
local known = redis.call('GET', KEYS[3])
if known then return known end
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if not epoch then return 'missing' end
local answer = 'sold out'
if tonumber(redis.call('HGET', KEYS[1], 'available')) >= tonumber(ARGV[2]) then
  redis.call('HINCRBY', KEYS[1], 'available', -ARGV[2])
  redis.call('ZADD', KEYS[2], redis.call('TIME')[1], ARGV[1])
  answer = 'ok:' .. epoch .. ':' .. ARGV[2]
end
redis.call('SET', KEYS[3], answer, 'EX', 86400)
return answer`)

// release releases once. A missing token was created in a Redis that has been lost: the restored stock includes it.
var release = redis.NewScript(`
if redis.call('EXISTS', KEYS[1]) == 0 then return 'missing' end
redis.call('ZREM', KEYS[2], ARGV[1])
local quantity = string.match(redis.call('GET', KEYS[3]) or '', '^ok:%d+:(%d+)$')
if quantity then redis.call('HINCRBY', KEYS[1], 'available', quantity) end
redis.call('SET', KEYS[3], 'released', 'EX', 86400)
return 'released'`)

// restore creates a missing stock. Requests in progress are closed: their orders have the old epoch. After that the tokens of the
// orders match the orders. It never overwrites a stock.
var restore = redis.NewScript(`
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
for _, token in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do redis.call('SET', KEYS[3] .. token, 'released', 'EX', 86400) end
redis.call('DEL', KEYS[2])
for i = 3, #ARGV, 2 do redis.call('SET', KEYS[3] .. ARGV[i], ARGV[i + 1], 'EX', 86400) end
redis.call('HSET', KEYS[1], 'available', ARGV[1], 'epoch', ARGV[2])
return 1`)

func keys(product int, token string) []string {
	return []string{fmt.Sprintf("stock:{%d}", product), fmt.Sprintf("pending:{%d}", product), fmt.Sprintf("token:{%d}:%s", product, token)}
}

// Reserve takes a quantity for a request and returns the epoch of the stock.
func (s Stock) Reserve(ctx context.Context, product, quantity int, token string) (epoch int, err error) {
	answer, err := reserve.Run(ctx, s.Client, keys(product, token), token, quantity).Text()
	switch {
	case err != nil:
		return 0, fmt.Errorf("reserve product %d: %w", product, err)
	case answer == soldOut:
		return 0, ErrSoldOut
	case answer == released:
		return 0, ErrReleased
	case answer == missing:
		return 0, ErrMissing
	}
	return strconv.Atoi(strings.Split(answer, ":")[1])
}

// Release returns the reservation of a request. Repeating it does nothing.
func (s Stock) Release(ctx context.Context, product int, token string) error {
	answer, err := release.Run(ctx, s.Client, keys(product, token), token).Text()
	if err == nil && answer == missing {
		err = ErrMissing
	}
	if err != nil {
		return fmt.Errorf("release product %d of %s: %w", product, token, err)
	}
	return nil
}

// Placed records that the order of a request is written.
func (s Stock) Placed(ctx context.Context, product int, token string) error {
	return s.Client.ZRem(ctx, keys(product, "")[1], token).Err()
}

// Pending lists requests that are older than age and may have no order.
func (s Stock) Pending(ctx context.Context, product int, age time.Duration) ([]string, error) {
	now, err := s.Client.Time(ctx).Result()
	if err != nil {
		return nil, err
	}
	until := strconv.FormatInt(now.Add(-age).Unix(), 10)
	return s.Client.ZRangeByScore(ctx, keys(product, "")[1], &redis.ZRangeBy{Min: "-inf", Max: until}).Result()
}

// Available is the stock that can be reserved; ErrMissing when Redis has none.
func (s Stock) Available(ctx context.Context, product int) (int, error) {
	n, err := s.Client.HGet(ctx, keys(product, "")[0], "available").Int()
	if errors.Is(err, redis.Nil) {
		err = ErrMissing
	}
	return n, err
}

// Reservation is that of an unpaid order: it may be released, or was (the order is cancelled).
type Reservation struct {
	Token           string
	Epoch, Quantity int
	Released        bool
}

func (r Reservation) answer() string {
	if r.Released {
		return released
	}
	return fmt.Sprintf("ok:%d:%d", r.Epoch, r.Quantity)
}

// Restore creates the missing stock of a product. The caller has raised the epoch in the database before it counted.
func (s Stock) Restore(ctx context.Context, product, available, epoch int, orders []Reservation) error {
	args := []any{available, epoch}
	for _, r := range orders {
		args = append(args, r.Token, r.answer())
	}
	return restore.Run(ctx, s.Client, keys(product, ""), args...).Err()
}
