package cache

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
)

// Limits of what an object costs in memory. Everybody who may create an object may make it as large as the API server
// accepts. What exceeds these limits is far above what is useful, and exceeds the limits of its readers even when cut.
const (
	maxText   = 16<<10 + 1 // more than the names of the 1,024 ports that a class can permit, with commas in between
	maxObject = 128 << 10  // a Pod with more ports than that
)

// Bound cuts an object that another cache keeps whole, and that has not more than many hosts, ports or routes.
func Bound(o any) { bound(o, 4*maxObject) }

// bound cuts the lists and maps of an object, to which o points, so that all of them have at most limit bytes, and its
// texts, each of which has at most maxText bytes. Few texts are in no list; they do not count.
func bound(o any, limit int) { (&budget{limit}).cut(reflect.ValueOf(o).Elem(), false) }

// budget is the number of bytes that are left.
type budget struct{ left int }

// take returns how many of n things of a size may be kept.
func (b *budget) take(n, size int) int {
	n = min(n, max(b.left, 0)/max(size, 1))
	b.left -= n * size
	return n
}

func (b *budget) cut(v reflect.Value, listed bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			b.left -= int(v.Type().Elem().Size())
			b.cut(v.Elem(), listed)
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			if field.CanSet() {
				b.cut(field, listed)
			}
		}
	case reflect.String:
		n := min(v.Len(), maxText)
		if listed {
			n = b.take(n, 1)
		}
		if n < v.Len() {
			v.SetString(strings.Clone(v.String()[:n]))
		}
	case reflect.Slice:
		b.cutList(v)
	case reflect.Map:
		b.cutMap(v)
	}
}

func (b *budget) cutList(v reflect.Value) {
	n := b.take(v.Len(), int(v.Type().Elem().Size()))
	if n < v.Len() { // a list of its own, so that what is cut can be collected
		v.Set(reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, n), v.Slice(0, n)))
	}
	if v.Type().Elem().Kind() == reflect.Uint8 {
		return
	}
	for i := range n {
		b.cut(v.Index(i), true)
	}
}

// cutMap keeps the entries that come first in the order of their names. An object that was cut before is not changed,
// because others read it.
func (b *budget) cutMap(v reflect.Value) {
	const entry = 64 // a map has room for more entries
	kept, keys := reflect.MakeMap(v.Type()), v.MapKeys()
	slices.SortFunc(keys, func(x, y reflect.Value) int { return cmp.Compare(x.String(), y.String()) })
	for _, key := range keys {
		if b.take(1, entry+key.Len()) == 0 {
			break
		}
		value := reflect.New(v.Type().Elem()).Elem()
		value.Set(v.MapIndex(key))
		b.cut(value, true)
		kept.SetMapIndex(key, value)
	}
	if v.Len() > 0 && !reflect.DeepEqual(kept.Interface(), v.Interface()) {
		v.Set(kept)
	}
}
