// Notes as sound, by the browser itself: a few harmonics a note, as the .wav of the server has them.

const RISE = 0.005, FALL = 0.06, LEAD = 0.05;

export class Player {
  constructor() {
    this.context = null;
    this.playing = null;
  }

  get state() { return this.context?.state ?? "none"; }

  // How loud it is at the moment, 0 to 1.
  level() {
    if (!this.meter) return 0;
    const wave = new Float32Array(this.meter.fftSize);
    this.meter.getFloatTimeDomainData(wave);
    return Math.max(...wave.map(Math.abs));
  }

  // Strokes are [note, start, end] in steps. `onStep` is told where it is, in steps, at every frame; `onEnd` once.
  async play(strokes, steps, seconds, onStep, onEnd) {
    this.stop();
    if (!this.context) {
      this.context = new AudioContext();
      this.meter = this.context.createAnalyser();
      const limit = this.context.createDynamicsCompressor();
      limit.connect(this.meter).connect(this.context.destination);
      this.master = limit;
      const parts = [0, 1, 2, 3, 4].map((k) => (k ? k ** -1.5 : 0));
      this.wave = this.context.createPeriodicWave(new Float32Array(5), new Float32Array(parts));
    }
    await this.context.resume();
    const begin = this.context.currentTime + LEAD;
    const volume = this.context.createGain();
    volume.gain.value = 0.22;
    volume.connect(this.master);
    const own = { volume, sources: [], onEnd };
    this.playing = own;
    for (const [note, start, end] of strokes) {
      const source = this.context.createOscillator(), envelope = this.context.createGain();
      source.setPeriodicWave(this.wave);
      source.frequency.value = 440 * 2 ** ((note - 69) / 12);
      const [on, off] = [start, end].map((step) => begin + step * seconds);
      envelope.gain.setValueAtTime(0, on);
      envelope.gain.linearRampToValueAtTime(1, on + RISE);
      envelope.gain.setTargetAtTime(0.25, on + RISE, 0.7);
      envelope.gain.setTargetAtTime(0, off, FALL / 3);
      source.connect(envelope).connect(volume);
      source.start(on);
      source.stop(off + 4 * FALL);
      own.sources.push(source);
    }
    const frame = () => {
      if (this.playing !== own) return;
      const at = (this.context.currentTime - begin) / seconds;
      if (at >= steps) { this.stop(); return; }
      onStep(Math.max(0, at));
      requestAnimationFrame(frame);
    };
    frame();
  }

  stop() {
    const own = this.playing;
    if (!own) return;
    this.playing = null;
    own.volume.gain.setTargetAtTime(0, this.context.currentTime, 0.02);
    for (const source of own.sources) source.stop(this.context.currentTime + 0.15);
    setTimeout(() => own.volume.disconnect(), 300);
    own.onEnd();
  }
}

export const player = new Player();
