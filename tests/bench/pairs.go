package main

import (
	"context"
	"slices"
	"time"
)

// spread is the middle of several figures, and how far they lie apart.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	N      int     `json:"n"`
}

func spreadOf(figures []float64) spread {
	if len(figures) == 0 {
		return spread{}
	}
	s := slices.Sorted(slices.Values(figures))
	n := len(s)
	return spread{Median: (s[(n-1)/2] + s[n/2]) / 2, Min: s[0], Max: s[n-1], N: n}
}

// ratios divides pair by pair.
func ratios(a, b []float64) []float64 {
	return combine(a, b, func(a, b float64) float64 { return a / b })
}

func differences(a, b []float64) []float64 {
	return combine(a, b, func(a, b float64) float64 { return a - b })
}

func combine(a, b []float64, f func(a, b float64) float64) []float64 {
	out := make([]float64, min(len(a), len(b)))
	for i := range out {
		out[i] = f(a[i], b[i])
	}
	return out
}

// inTurn measures all of ways n times, in turn, after one round that does not
// count: it fills caches for each of them alike.
func inTurn[T any](ctx context.Context, n int, ways ...func(context.Context) (T, error)) ([][]T, error) {
	out := make([][]T, len(ways))
	for round := range n + 1 {
		for i, way := range ways {
			if err := ctx.Err(); err != nil {
				return nil, context.Cause(ctx)
			}
			v, err := way(ctx)
			if err != nil {
				return nil, err
			}
			if round > 0 {
				out[i] = append(out[i], v)
			}
		}
	}
	return out, nil
}

// each picks one figure of every sample.
func each[T any](samples []T, figure func(T) float64) []float64 {
	out := make([]float64, len(samples))
	for i, s := range samples {
		out[i] = figure(s)
	}
	return out
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
