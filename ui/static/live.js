// Turns one WebSocket (or, where those are blocked, a poll every 5 seconds) into messages with a cursor and one connection status.

import { get, root } from "./api.js";

const FIRST_DELAY_MS = 500;
const LONGEST_DELAY_MS = 15_000;
const POLL_MS = 5_000;
const SILENCE_MS = 45_000; // the server sends a beat every 15 s: three missed beats are a dead line that TCP has not noticed
const FINAL_CODES = { 4401: "signed_out", 4404: "gone" };

/**
 * `params()` gives the query of the next connection (so that a reconnect goes on at the newest cursor), `poll()` the address of the
 * fallback or null, `onMessage(message)` may be asynchronous, `onStatus(status)` gets connecting, live, polling, waiting, signed_out or gone.
 */
export class Live {
  constructor({ params, poll, onMessage, onStatus }) {
    Object.assign(this, { params, poll, onMessage, onStatus });
    this.failures = 0;
    this.closed = false;
    this.retryAt = 0;
    this.onVisible = () => document.visibilityState === "visible" && this.retryNow();
    document.addEventListener("visibilitychange", this.onVisible);
    window.addEventListener("online", this.onVisible);
    this.connect();
  }

  connect() {
    if (this.closed) return;
    this.report(this.failures ? "waiting" : "connecting");
    const query = new URLSearchParams(this.params()).toString();
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(`${scheme}//${location.host}${root()}/api/ws${query ? `?${query}` : ""}`);
    this.socket = socket;
    socket.onopen = () => {
      this.failures = 0;
      this.stopPolling();
      this.report("live");
      this.watchSilence();
    };
    socket.onmessage = (event) => {
      if (this.socket !== socket) return;
      this.watchSilence();
      this.onMessage(JSON.parse(event.data));
    };
    socket.onclose = (event) => this.socket === socket && this.lost(event.code);
  }

  lost(code) {
    clearTimeout(this.silence);
    if (this.closed) return;
    if (FINAL_CODES[code]) {
      this.close();
      this.onStatus(FINAL_CODES[code]);
      return;
    }
    this.failures += 1;
    const delay = Math.min(FIRST_DELAY_MS * 2 ** (this.failures - 1), LONGEST_DELAY_MS) * (0.8 + 0.4 * Math.random());
    this.retryAt = Date.now() + delay;
    clearTimeout(this.retry);
    this.retry = setTimeout(() => this.connect(), delay);
    if (this.failures >= 2) this.startPolling();
    if (!this.polling) this.report("waiting");
  }

  /** Reconnects at once: the person asked, the tab came back, or the page has a new cursor. */
  retryNow() {
    if (this.closed || this.socket?.readyState === WebSocket.OPEN || this.socket?.readyState === WebSocket.CONNECTING) return;
    clearTimeout(this.retry);
    this.connect();
  }

  restart() {
    const socket = this.socket;
    this.socket = null;
    socket?.close();
    clearTimeout(this.retry);
    this.connect();
  }

  watchSilence() {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => this.socket?.close(), SILENCE_MS);
  }

  startPolling() {
    if (this.polling) return;
    const tick = async () => {
      const address = this.poll();
      if (!address) return;
      try {
        const message = await get(address);
        if (this.polling === undefined || this.closed) return;
        this.report("polling");
        await this.onMessage(message);
      } catch {
        this.report("waiting"); // the server is away altogether: the pill says so and the retry goes on
      }
    };
    this.polling = setInterval(tick, POLL_MS);
    tick();
  }

  stopPolling() {
    clearInterval(this.polling);
    this.polling = undefined;
  }

  report(status) {
    if (status === this.status) return;
    this.status = status;
    this.onStatus(status);
  }

  close() {
    this.closed = true;
    clearTimeout(this.retry);
    clearTimeout(this.silence);
    this.stopPolling();
    document.removeEventListener("visibilitychange", this.onVisible);
    window.removeEventListener("online", this.onVisible);
    const socket = this.socket;
    this.socket = null;
    socket?.close();
  }
}
