// Refusals: every answer with a status of 400 or above has one form.

export interface Detail {
  field: string;
  issue: string;
}

export class Refusal extends Error {
  readonly status: number;
  readonly code: string;
  readonly details: Detail[];

  constructor(status: number, code: string, message: string, details: Detail[] = []) {
    super(message);
    this.status = status;
    this.code = code;
    this.details = details;
  }

  envelope(): object {
    return { error: { code: this.code, message: this.message, details: this.details } };
  }
}
