package config

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// envPrefix starts the name of every variable that is a setting.
const envPrefix = "WITAN_"

// ApplyEnv sets what environ, a list of NAME=value such as os.Environ gives, says: WITAN_<KEY> or WITAN_<SECTION>_<KEY> in upper
// case, lists separated by commas. An empty value empties a text or a list, and is an error for everything else. Unknown
// variables that start with WITAN_ are errors, and all errors are reported at once.
func ApplyEnv(c *Config, environ []string) error {
	known := map[string]reflect.Value{}
	settings(reflect.ValueOf(c).Elem(), nil, func(path []string, v reflect.Value) { known[envName(path)] = v })
	var errs []error
	for _, entry := range environ {
		name, value, ok := strings.Cut(entry, "=")
		if !ok || !strings.HasPrefix(name, envPrefix) {
			continue
		}
		v, ok := known[name]
		if !ok {
			errs = append(errs, fmt.Errorf("environment variable %s: no such setting%s", name, envHint(name, known)))
		} else if err := setText(v, strings.TrimSpace(value)); err != nil {
			errs = append(errs, fmt.Errorf("environment variable %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func envName(path []string) string { return envPrefix + strings.ToUpper(strings.Join(path, "_")) }

func envHint(name string, known map[string]reflect.Value) string {
	for _, block := range []string{"WITAN_MIRROR_HOST", "WITAN_WITNESS_TRUST", "WITAN_WITNESS_POLICY_GROUP", "WITAN_WITNESS_POLICY_ORIGIN", "WITAN_WITNESS_LOG", "WITAN_LOG_WITNESS"} {
		if strings.HasPrefix(name, block) {
			return "; hosts, witnesses and logs are blocks of the settings file"
		}
	}
	names := make([]string, 0, len(known))
	for n := range known {
		names = append(names, n)
	}
	slices.Sort(names)
	best, distance := "", 4
	for _, n := range names {
		if d := editDistance(name, n, distance); d < distance {
			best, distance = n, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

func setText(v reflect.Value, text string) error {
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text))
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is not true or false", text)
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, v.Type().Bits())
		if err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
		v.SetInt(n)
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("%q is not a number", text)
		}
		v.SetFloat(f)
	case reflect.Slice:
		list := reflect.MakeSlice(v.Type(), 0, 4)
		for item := range strings.SplitSeq(text, ",") {
			if item = strings.TrimSpace(item); item == "" {
				continue
			}
			e := reflect.New(v.Type().Elem()).Elem()
			if err := setText(e, item); err != nil {
				return err
			}
			list = reflect.Append(list, e)
		}
		v.Set(list)
	default:
		panic("config: a setting of kind " + v.Kind().String())
	}
	return nil
}
