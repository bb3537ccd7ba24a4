package store

const kindCosigned = 'C'

// Cosigned is the checkpoint that was cosigned last of the log whose origin line has this SHA-256.
func Cosigned(origin [32]byte) []byte {
	return append(append(make([]byte, 0, 33), kindCosigned), origin[:]...)
}
func CosignedRange() (from, to []byte) { return under([]byte{kindCosigned}) }
