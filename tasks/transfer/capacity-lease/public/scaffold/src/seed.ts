// `npm run seed -- FILE`: section 11 of the contract.
console.error("seed: not implemented yet");
process.exitCode = 1;
